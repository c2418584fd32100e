package rawhead

import (
	"math/rand/v2"
	"strings"
)

// nearRequests puts requests together, most parts of which are right.
func nearRequests(r *rand.Rand) []byte {
	part := func(good, bad []string) string {
		if r.IntN(100) < 97 {
			return good[r.IntN(len(good))]
		}
		return bad[r.IntN(len(bad))]
	}
	eol := func() string { return part([]string{"\r\n"}, []string{"\n", "\r", "\r\r\n", "\n\r", " \r\n", ""}) }
	field := func() string {
		return part([]string{"X: y", "Accept: */*", "X:", "Cookie: a=b; c=d", "Z: \xff\t"}, []string{" folded", "X : y", ": y", "X", "X: \x00", "Content-Length: 3",
			"Transfer-Encoding: chunked", "Host: b", "Content_Length: 3", "Upgrade: a"}) + eol()
	}
	var b strings.Builder
	for range 1 + r.IntN(4) {
		b.WriteString(part([]string{"GET / HTTP/1.1", "POST /a?b HTTP/1.1", "PUT http://a/ HTTP/1.1"}, []string{"GET / HTTP/1.0", "GET  / HTTP/1.1", "GET / HTTP/2.0", "CONNECT a HTTP/1.1", ""}) + eol())
		b.WriteString(part([]string{"Host: a"}, []string{"Host: a b", "X: y"}) + eol())
		for range r.IntN(3) {
			b.WriteString(field())
		}
		switch r.IntN(3) {
		case 0:
			b.WriteString(eol())
		case 1:
			b.WriteString(part([]string{"Content-Length: 5"}, []string{"Content-Length: 6", "Content-Length: +5", "Content-Length: 5, 5", "Content-Length:5 "}) + eol() + eol() + "a\r\n\r\n")
		default:
			b.WriteString(part([]string{"Transfer-Encoding: chunked", "transfer-encoding:  Chunked"}, []string{"Transfer-Encoding: xchunked", "Transfer-Encoding:\tchunked", "Transfer-Encoding: identity"}) + eol() + eol())
			for range r.IntN(3) {
				b.WriteString(part([]string{"5", "05", "5;a=b"}, []string{"0x5", "5 ", " 5", "4", "6", "+5", "00000000000000005"}) + eol() + "a\n0\r\n" + eol())
			}
			b.WriteString(part([]string{"0", "0;a", "000"}, []string{"-0", "0 ", ""}) + eol())
			for range r.IntN(2) {
				b.WriteString(field())
			}
			b.WriteString(eol())
		}
	}
	return []byte(b.String())
}

// seeds are streams of what is allowed, of what is not, and of what nearly is.
func seeds() []string {
	const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	const post = "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
	const start = "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
	const chunked = start + "\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n"
	const trailed = start + "Trailer: Sum\r\n\r\n5\r\nhello\r\n0;z\r\nSum: 1\r\nX: y\r\n\r\n"
	texts := []string{
		get, post, chunked, trailed, get + get + get, post + chunked + trailed + get, chunked + post + post,
		"GET /old HTTP/1.0\r\n\r\n" + get, "GET http://a/b?c#d HTTP/1.1\r\nHost: b\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\r\n" + get, "\n" + get,
		"GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\r\nHost: a\n\r\n", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.0\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc" + get,
		"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		get + strings.Repeat("x", 300), post[:len(post)-2], chunked[:len(chunked)-3], trailed[:len(trailed)-1],
		start + "\r\n" + strings.Repeat("1;"+strings.Repeat("e", 60)+"\r\nx\r\n", 30) + "0\r\n\r\n",
		start + "\r\n0\r\nX: " + strings.Repeat("t", 4100) + "\r\n\r\n",
	}
	for _, line := range []string{
		"Content-Length: 5\r\nContent-Length: 5", "Content-Length: 5, 5", "Content-Length: +5", "Content-Length: 005", "Content-Length:\t5",
		"Content-Length: 5 ", "Content-Length : 5", "Content_Length: 5", "content-LENGTH:5", "Content-Length: 999999999999999",
		"Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: identity", "Transfer-Encoding: gzip, chunked",
		"Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked\v", "Transfer-Encoding: Chunked", "TE: trailers",
		"X: a\r\n b", "X: a\rb", "X: a\x00b", "X:\r\nY:\t", ": a", "X", "Host: b", "Upgrade: h2c\r\nConnection: upgrade", "Expect: 100-continue",
		"A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5",
	} {
		texts = append(texts, "POST / HTTP/1.1\r\nHost: a\r\n"+line+"\r\n\r\nhello"+get)
	}
	for _, body := range []string{
		"0x5\r\nhello\r\n0\r\n\r\n", "+5\r\nhello\r\n0\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n",
		"5\r\nhello!\r\n0\r\n\r\n", "0000000000000005\r\nhello\r\n0\r\n\r\n", "fffffffffffffff\r\nhello", "5\r\nhello\r\n0\r\nContent-Length: 4\r\n\r\n",
		"0\r\n\n", "0\n\r\n", "0\r\nX: y\r\n z\r\n\r\n", "5;\"a\r\nb\"\r\nhello\r\n0\r\n\r\n", "5\r\nhel", "00\r\n\r\n",
	} {
		texts = append(texts, start+"\r\n"+body+get)
	}
	return texts
}

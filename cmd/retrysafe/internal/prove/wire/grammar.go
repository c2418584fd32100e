package wire

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
)

// A grammar makes requests most parts of which are right.
type grammar struct {
	*rand.Rand
	run uint64 // so that the keys of two runs over one store differ
}

// often is how many of a hundred parts are right.
const often = 96

// part draws one that is right, or seldom one that is not.
func (g *grammar) part(right, wrong []string) string {
	if g.IntN(100) < often {
		return right[g.IntN(len(right))]
	}
	return wrong[g.IntN(len(wrong))]
}

// one draws one of many.
func (g *grammar) one(of []string) string { return of[g.IntN(len(of))] }

// eol ends a line.
func (g *grammar) eol() string {
	if g.IntN(300) > 0 {
		return "\r\n"
	}
	return g.one([]string{"\n", "\r", "\r\r\n", "\n\r", " \r\n", "", "\x00\r\n"})
}

// stream makes the bytes of one connection: requests, and sometimes a change at random.
func (g *grammar) stream(n int) []byte {
	var b bytes.Buffer
	many := 1
	if g.IntN(4) == 0 {
		many += 1 + g.IntN(3)
	}
	for i := range many {
		g.request(&b, fmt.Sprintf("%d-%d", n, i))
	}
	if g.IntN(8) == 0 {
		return g.damaged(b.Bytes())
	}
	return b.Bytes()
}

// damaged changes bytes. What is left alone is the number that tells requests apart,
// as far as chance lets it.
func (g *grammar) damaged(b []byte) []byte {
	for range 1 + g.IntN(3) {
		at := g.IntN(len(b))
		switch odd := []byte("\x00\r\n \t:;,\"\x7f\x80\xff0")[g.IntN(13)]; g.IntN(4) {
		case 0:
			b[at] = odd
		case 1:
			b = append(b[:at], append([]byte{odd}, b[at:]...)...)
		case 2:
			b = append(b[:at], b[at+1:]...)
		default:
			end := min(len(b), at+g.IntN(40))
			b = append(b[:end], append(bytes.Clone(b[at:end]), b[end:]...)...)
		}
		if len(b) == 0 {
			return []byte{'\n'}
		}
	}
	return b
}

var (
	methods    = []string{"POST", "POST", "POST", "POST", "PATCH", "GET", "PUT", "DELETE", "HEAD", "OPTIONS", "QUERY"}
	badMethods = []string{"post", "PoST", "GE:T", "", "CONNECT", "TRACE", "PRI", "POST\x00", "POST\t", strings.Repeat("M", 5000), "\xff"}
	versions   = []string{" HTTP/1.1"}
	badVersion = []string{" HTTP/1.0", " HTTP/1.2", " HTTP/0.9", " HTTP/2.0", " http/1.1", " HTTP/1.1 ", "  HTTP/1.1", "\tHTTP/1.1", "", " HTTP/1.1\r", " HTTP/11", " HTTP/1.10"}
	routes     = []string{"/keyed/", "/keyed/", "/decoded/", "/passed/", "/optional/", "/any/", "/any/"}
	targets    = []string{"%s", "%s", "%s?a=b&c=%%20", "%s?%s", "/%s", "%s;a=b"}
	badTargets = []string{"http://evil.example%s", "/..%s", "%s/../x", "%s%%2Fx", "%s%%00", "%s%%zz", "*", "", "%s#x", "%s x", "%s\xa0x", "%s\x00",
		"%s\r", "%s?\xff", "%s\\x", "%s?a=b;c", "//evil.example%s", "/.retrysafe%s", "/.retrysafe/keys%s", "%s" + strings.Repeat("/a", 20000), "%s[]{}|^`<>"}
	hosts    = []string{"Host: a"}
	badHosts = []string{"", "Host: a\r\nHost: a", "Host: a\r\nhost: b", "Host: a b", "Host:", "Host: a/b", "Host: \xff", "Host : a", "Host: [::1", "Host: a\r\n b", "Host: evil@a", "Host: a,b"}
	fields   = []string{"Accept: */*", "X:", "Cookie: a=b; c=d", "X-Long: " + strings.Repeat("a", 500), "Content-Type: application/json", "Connection: keep-alive",
		"Accept-Encoding: gzip", "X-Forwarded-For: 10.0.0.1", "Authorization: Bearer x", "Prefer: wait", "TE: trailers", "X-Opaque: caf\xc3\xa9 \xff"}
	badFields = []string{" folded", "\tfolded", "X : y", ": y", "X", "X: \x00", "X: a\rb", "X: \x1b[2J", "X\x00: y", "\xef\xbb\xbfX: y", "Content_Length: 3", "Transfer_Encoding: chunked",
		"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__", "Upgrade: websocket\r\nConnection: Upgrade", "Connection: close", "Connection: Idempotency-Key",
		"Connection: Content-Length", "X-HTTP-Method-Override: POST", "Expect: 200-ok", "Trailer: Content-Length", "Content-Encoding: gzip", "Content-Encoding: br, gzip", "Content-Type: ;;;", "Content-Type: multipart/form-data",
		"X: " + strings.Repeat("a", 70<<10), strings.Repeat("X: a\r\n", 250) + "X: a", "Proxy-Connection: keep-alive", "Forwarded: for=x", "Range: bytes=0-18446744073709551615", "Idempotency-First-Sent: yesterday"}
)

// request makes one request, whose name is in its target and in its key.
func (g *grammar) request(b *bytes.Buffer, name string) {
	route := g.one(routes)
	target := strings.ReplaceAll(strings.ReplaceAll(g.part(targets, badTargets), "%s", route+name), "%%", "%")
	b.WriteString(g.part(methods, badMethods) + " " + target + g.part(versions, badVersion) + g.eol())
	for _, line := range []string{g.part(hosts, badHosts), g.key(name)} {
		if line != "" {
			b.WriteString(line + g.eol())
		}
	}
	for range g.IntN(4) {
		b.WriteString(g.part(fields, badFields) + g.eol())
	}
	body := g.body()
	if route == decoded && g.IntN(2) == 0 {
		b.WriteString("Content-Encoding: gzip" + g.eol())
		body = g.zipped(body)
	}
	g.framed(b, body)
}

// key makes the line with the key.
func (g *grammar) key(name string) string {
	k := fmt.Sprintf("%x-%s-0123456789", g.run, name)
	if g.IntN(4) > 0 {
		return `Idempotency-Key: "` + k + `"`
	}
	return g.one([]string{
		"", "Idempotency-Key: " + k, "idempotency-key: \"" + k + "\"", "Idempotency-Key:", `Idempotency-Key: ""`, `Idempotency-Key: "` + k, `Idempotency-Key: ` + k + `"`,
		`Idempotency-Key: "` + k + `"; a=1`, `Idempotency-Key: "a\"` + k + `"`, `Idempotency-Key: "a\x` + k + `"`, `Idempotency-Key: "` + k + `", "` + k + `"`, "Idempotency-Key: " + k + "," + k,
		"Idempotency-Key: " + k + "\r\nIdempotency-Key: " + k, "Idempotency-Key: \xff\xfe" + k, "Idempotency-Key: caf\xc3\xa9-" + k, "Idempotency-Key: \x00" + k, "Idempotency-Key: a\tb" + k,
		"Idempotency-Key: a b" + k, `Idempotency-Key: "` + strings.Repeat("k", 256) + `"`, "Idempotency-Key: " + strings.Repeat("k", 60000), "Idempotency_Key: " + k, "Idempotency-Key : " + k,
		`Idempotency-Key: "'; DROP TABLE retrysafe_keys; --` + k + `"`, `Idempotency-Key: :aGVsbG8=:`, "Idempotency-Key: ?1", "Idempotency-Key: 42", "Idempotency-Key: (a b)", "Idempotency-Key: \"the same for all of them\"",
	})
}

var bodies = sync.OnceValue(func() []string {
	return []string{
		"", "", "{}", `{"amount":1200}`, `{"amount":1200}`, `{"a":1,"a":2}`, `{"amount":9007199254740993}`, `{"n":1e400}`, `{"n":-0}`, `{"n":1E-999999999}`, "{\"n\":" + strings.Repeat("9", 5000) + "}",
		"\xef\xbb\xbf{}", `{"s":"\ud800"}`, `{"s":"\udc00\ud800"}`, "{\"s\":\"\xff\"}", "{\"s\":\"\x00\"}", strings.Repeat("[", 20000), strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000),
		"[" + strings.Repeat("1,", 5000) + "1]", `{"a":NaN}`, `{'a':1}`, `{"a":1,}`, "null", "\"", "a=b&c=d&a=%zz", "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", "0\r\n\r\n", "\r\n\r\n",
	}
})

// body makes one, seldom one that is too large.
func (g *grammar) body() string {
	if g.IntN(100) == 0 {
		return strings.Repeat("x", 1<<20+g.IntN(2))
	}
	return g.one(bodies())
}

// bomb is small, and large when it is unpacked.
var bomb = sync.OnceValue(func() string {
	var b bytes.Buffer
	z, zeros := gzip.NewWriter(&b), make([]byte, 1<<20)
	for range 64 {
		_, _ = z.Write(zeros)
	}
	_ = z.Close()
	return b.String()
})

func (g *grammar) zipped(body string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(body))
	_ = z.Close()
	text := b.String()
	switch g.IntN(8) {
	case 0:
		return bomb()
	case 1:
		return text[:g.IntN(len(text))]
	case 2:
		return text + text
	case 3:
		return text + "more"
	case 4:
		return body
	default:
		return text
	}
}

// framed ends the head and writes the body.
func (g *grammar) framed(b *bytes.Buffer, body string) {
	n := len(body)
	length := fmt.Sprintf("Content-Length: %d", n)
	switch g.IntN(20) {
	case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
		b.WriteString(length + g.eol() + g.eol() + body)
	case 10, 11, 12, 13, 14:
		b.WriteString(g.part([]string{"Transfer-Encoding: chunked", "transfer-encoding: Chunked"}, badCodings) + g.eol() + g.eol())
		g.chunked(b, body)
	case 15:
		if n == 0 {
			b.WriteString(g.eol())
			return
		}
		b.WriteString(g.one([]string{"Expect: 100-continue\r\n" + length, "Connection: close\r\n" + length}) + g.eol() + g.eol() + body)
	default:
		b.WriteString(g.one([]string{
			length + "\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\n" + length, length + "\r\n" + length, length + "\r\nContent-Length: 0",
			fmt.Sprintf("Content-Length: %d", n+5), fmt.Sprintf("Content-Length: %d", n/2), fmt.Sprintf("Content-Length: +%d", n), fmt.Sprintf("Content-Length: -%d", n), fmt.Sprintf("Content-Length: %d, %d", n, n),
			fmt.Sprintf("Content-Length: 0x%x", n), fmt.Sprintf("Content-Length:\t%d", n), fmt.Sprintf("Content-Length: %d ", n), "Content-Length: 18446744073709551620", "Content-Length: 999999999999", "Content-Length:",
			fmt.Sprintf("Content-Length : %d", n), fmt.Sprintf("Content-Length:\r\n %d", n), fmt.Sprintf("Content-Length: 00%d", n),
		}) + g.eol() + g.eol() + body)
	}
}

var badCodings = []string{
	"Transfer-Encoding: xchunked", "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: identity", "Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked ",
	"Transfer-Encoding:\r\n chunked", "Transfer-Encoding : chunked", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
	"Transfer-Encoding: \x0bchunked", "Transfer-Encoding: chunked;q=1", "Transfer-Encoding:", "Transfer-Encoding: chunked,",
}

// chunked writes a body in chunks, of which few are wrong.
func (g *grammar) chunked(b *bytes.Buffer, body string) {
	for len(body) > 0 {
		n := 1 + g.IntN(len(body))
		size := fmt.Sprintf("%x", n)
		b.WriteString(g.part([]string{size, size, "0" + size, size + ";a=b", size + `;a="b;c"`}, []string{
			"0x" + size, "+" + size, "-" + size, size + " ", " " + size, size + "\t;a", "", ";a", "fffffffffffffff", "00000000000000000" + size, fmt.Sprintf("%x", n+1), fmt.Sprintf("%X", n+15), size + ";" + strings.Repeat("e", 3000), size + ";a\rb", size + "_0",
		}) + g.eol() + body[:n] + g.eol())
		body = body[n:]
	}
	b.WriteString(g.part([]string{"0", "0", "000", "0;last"}, []string{"-0", "0 ", "", "0x0"}) + g.eol())
	for range g.IntN(2) {
		b.WriteString(g.part([]string{"X-Sum: 1", "Idempotency-Key: late"}, []string{"Content-Length: 4", "Transfer-Encoding: chunked", "Host: b", " folded", "X", "X: " + strings.Repeat("t", 5000)}) + g.eol())
	}
	b.WriteString(g.eol())
}

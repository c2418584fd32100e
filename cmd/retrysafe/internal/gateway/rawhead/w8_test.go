package rawhead_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/rawhead"
)

// Behind each offence stands a request that a reader by other rules would find.
const smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"

// headers is a request with these lines, which end in CR LF where they do not end otherwise.
func headers(lines ...string) string {
	return "POST /bad HTTP/1.1\r\nHost: a\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// chunks is a request with this chunked body.
func chunks(body string) string { return headers("Transfer-Encoding: chunked") + body }

type offence struct {
	name, request string
	detail        string // a part of what the client is told
	status        int    // 400 unless said otherwise
	inBody        bool   // its head is in order
}

var offences = []offence{
	{name: "TE and CL", request: headers("Transfer-Encoding: chunked", "Content-Length: 4") + "0\r\n\r\n", detail: "exclude"},
	{name: "CL and TE", request: headers("Content-Length: 4", "Transfer-Encoding: chunked") + "0\r\n\r\n", detail: "exclude"},
	{name: "CL 0 and TE", request: headers("Content-Length: 0", "tRANSFER-eNCODING: CHUNKED") + "0\r\n\r\n", detail: "exclude"},

	{name: "two CLs", request: headers("Content-Length: 4", "Content-Length: 5"), detail: "more than one Content-Length"},
	{name: "two equal CLs", request: headers("Content-Length: 4", "content-length: 4"), detail: "more than one Content-Length"},
	{name: "two CLs of 0", request: headers("Content-Length: 0", "Content-Length: 0"), detail: "more than one Content-Length"},
	{name: "list of CLs", request: headers("Content-Length: 5, 5"), detail: "plain decimal"},
	{name: "CL with plus", request: headers("Content-Length: +4"), detail: "plain decimal"},
	{name: "CL with minus", request: headers("Content-Length: -4"), detail: "plain decimal"},
	{name: "CL minus 0", request: headers("Content-Length: -0"), detail: "plain decimal"},
	{name: "CL in hexadecimal", request: headers("Content-Length: 0x4"), detail: "plain decimal"},
	{name: "CL with underscore", request: headers("Content-Length: 1_0"), detail: "plain decimal"},
	{name: "CL with fraction", request: headers("Content-Length: 4.0"), detail: "plain decimal"},
	{name: "CL of two words", request: headers("Content-Length: 4 4"), detail: "plain decimal"},
	{name: "CL quoted", request: headers(`Content-Length: "4"`), detail: "plain decimal"},
	{name: "CL empty", request: headers("Content-Length:"), detail: "plain decimal"},
	{name: "CL blank", request: headers("Content-Length:  "), detail: "plain decimal"},
	{name: "CL after tab", request: headers("Content-Length:\t4"), detail: "plain decimal"},
	{name: "CL before space", request: headers("Content-Length: 4 "), detail: "plain decimal"},
	{name: "CL too large", request: headers("Content-Length: 9223372036854775808"), detail: "plain decimal"},
	{name: "CL that overflows to 4", request: headers("Content-Length: 18446744073709551620"), detail: "plain decimal"},
	{name: "CL in other digits", request: headers("Content-Length: ４"), detail: "plain decimal"},
	{name: "CL with underscore in its name", request: headers("Content_Length: 4"), detail: "underscore"},

	{name: "xchunked", request: headers("Transfer-Encoding: xchunked"), detail: "must be chunked"},
	{name: "chunked twice", request: headers("Transfer-Encoding: chunked, chunked"), detail: "must be chunked"},
	{name: "two TEs", request: headers("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + "0\r\n\r\n", detail: "more than one Transfer-Encoding"},
	{name: "TE and identity", request: headers("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), detail: "more than one Transfer-Encoding"},
	{name: "gzip, chunked", request: headers("Transfer-Encoding: gzip, chunked"), detail: "must be chunked"},
	{name: "chunked, identity", request: headers("Transfer-Encoding: chunked, identity"), detail: "must be chunked"},
	{name: "identity", request: headers("Transfer-Encoding: identity"), detail: "must be chunked"},
	{name: "identity with CL", request: headers("Transfer-Encoding: identity", "Content-Length: 4"), detail: "must be chunked"},
	{name: "TE empty", request: headers("Transfer-Encoding:"), detail: "must be chunked"},
	{name: "TE quoted", request: headers(`Transfer-Encoding: "chunked"`), detail: "must be chunked"},
	{name: "TE with parameter", request: headers("Transfer-Encoding: chunked;q=1"), detail: "must be chunked"},
	{name: "TE after tab", request: headers("Transfer-Encoding:\tchunked"), detail: "must be chunked"},
	{name: "TE before tab", request: headers("Transfer-Encoding: chunked\t"), detail: "must be chunked"},
	{name: "TE before space", request: headers("Transfer-Encoding: chunked "), detail: "must be chunked"},
	{name: "TE before comma", request: headers("Transfer-Encoding: chunked,"), detail: "must be chunked"},
	{name: "TE after vertical tab", request: headers("Transfer-Encoding: \vchunked"), detail: "control character"},
	{name: "TE before form feed", request: headers("Transfer-Encoding: chunked\f"), detail: "control character"},
	{name: "TE after no-break space", request: headers("Transfer-Encoding: \xa0chunked"), detail: "must be chunked"},
	{name: "TE with long s in it", request: headers("Tranſfer-Encoding: chunked"), detail: "header name"},
	{name: "TE with Kelvin sign", request: headers("Transfer-Encoding: chun\u212aed"), detail: "must be chunked"},
	{name: "TE with underscore in its name", request: headers("Transfer_Encoding: chunked"), detail: "underscore"},
	{name: "TE in HTTP/1.0", request: "POST /bad HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", detail: "needs HTTP/1.1"},
	{name: "TE in HTTP/1.0, kept alive", request: "POST /bad HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n", detail: "needs HTTP/1.1"},

	{name: "folded by space", request: headers("X: 1", " Content-Length: 4"), detail: "folded"},
	{name: "folded by tab", request: headers("X: 1", "\tContent-Length: 4"), detail: "folded"},
	{name: "folded TE", request: headers("Transfer-Encoding:", " chunked"), detail: "must be chunked"},
	{name: "folded first line", request: "GET /bad HTTP/1.1\r\n Host: a\r\n\r\n", detail: "folded"},
	{name: "blank line that is not empty", request: headers("X: 1", " "), detail: "folded"},
	{name: "space before colon", request: headers("Content-Length : 4"), detail: "and its colon"},
	{name: "tab before colon", request: headers("Transfer-Encoding\t: chunked"), detail: "and its colon"},
	{name: "no colon", request: headers("Content-Length 4"), detail: "and its colon"},
	{name: "name alone", request: headers("Content-Length"), detail: "header name"},
	{name: "empty name", request: headers(": 4"), detail: "header name"},
	{name: "NUL in name", request: headers("Content-\x00Length: 4"), detail: "header name"},
	{name: "NUL before name", request: headers("\x00Content-Length: 4"), detail: "header name"},
	{name: "vertical tab before colon", request: headers("Transfer-Encoding\v: chunked"), detail: "header name"},
	{name: "brackets in name", request: headers("[Content-Length]: 4"), detail: "header name"},
	{name: "quoted name", request: headers(`"Content-Length": 4`), detail: "header name"},
	{name: "byte-order mark before name", request: headers("\xef\xbb\xbfContent-Length: 4"), detail: "header name"},
	{name: "NUL in value", request: headers("X: a\x00b"), detail: "control character"},
	{name: "DEL in value", request: headers("X: a\x7fb"), detail: "control character"},
	{name: "escape in a long value", request: headers("X: " + strings.Repeat("a", 100) + "\x1b[2J" + strings.Repeat("a", 100)), detail: "control character"},
	{name: "bare CR in value", request: headers("X: a\rContent-Length: 4"), detail: "control character"},
	{name: "bare CR before line end", request: headers("X: a\r"), detail: "control character"},
	{name: "bare CR after name", request: headers("X\r: a"), detail: "header name"},
	{name: "bare CR before name", request: headers("\rTransfer-Encoding: chunked"), detail: "header name"},
	{name: "bare CRs for lines", request: "GET /bad HTTP/1.1\rHost: a\r\r\r\n\r\n", detail: "request line"},

	{name: "bare LF after request line", request: "GET /bad HTTP/1.1\nHost: a\r\n\r\n", detail: "CR LF"},
	{name: "bare LF after header", request: "GET /bad HTTP/1.1\r\nHost: a\n\r\n", detail: "CR LF"},
	{name: "bare LF for a header", request: headers("X: a\nContent-Length: 4"), detail: "CR LF"},
	{name: "bare LF for the empty line", request: "GET /bad HTTP/1.1\r\nHost: a\r\n\n", detail: "CR LF"},
	{name: "bare LFs", request: "GET /bad HTTP/1.1\nHost: a\n\n", detail: "CR LF"},
	{name: "LF CR", request: "GET /bad HTTP/1.1\n\rHost: a\n\r\n\r", detail: "CR LF"},

	{name: "no Host", request: "GET /bad HTTP/1.1\r\n\r\n", detail: "Host header is missing"},
	{name: "two Hosts", request: headers("Host: b"), detail: "more than one Host"},
	{name: "two equal Hosts", request: headers("host: a"), detail: "more than one Host"},
	{name: "two Hosts in HTTP/1.0", request: "GET /bad HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", detail: "more than one Host"},

	{name: "empty line first", request: "\r\nGET /bad HTTP/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "space first", request: " GET /bad HTTP/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "no method", request: " /bad HTTP/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "NUL first", request: "\x00GET /bad HTTP/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "two spaces before target", request: "GET  /bad HTTP/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "two spaces before version", request: "GET /bad  HTTP/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "tab before target", request: "GET\t/bad HTTP/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "tab before version", request: "GET /bad\tHTTP/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "space after version", request: "GET /bad HTTP/1.1 \r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "space in target", request: "GET /bad HTTP/1.1 /x HTTP/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "CR in target", request: "GET /bad\rX HTTP/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "no-break space in target", request: "GET /bad\xa0HTTP/1.1 HTTP/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "empty target", request: "GET  HTTP/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "no target", request: "GET HTTP/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "no version", request: "GET /bad\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "method with colon", request: "GE:T /bad HTTP/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "HTTP/0.9", request: "GET /bad HTTP/0.9\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "HTTP/1.2", request: "GET /bad HTTP/1.2\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "HTTP/1.10", request: "GET /bad HTTP/1.10\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "http/1.1", request: "GET /bad http/1.1\r\nHost: a\r\n\r\n", detail: "request line"},
	{name: "HTTP/2 preface", request: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", detail: "request line"},
	{name: "CONNECT", request: "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", detail: "stays with HTTP/1"},
	{name: "Upgrade", request: headers("Connection: Upgrade", "Upgrade: websocket"), detail: "stays with HTTP/1"},
	{name: "Upgrade to h2c", request: headers("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"), detail: "stays with HTTP/1"},

	{name: "head too large", request: headers("X: " + strings.Repeat("a", 70<<10)), detail: "too large", status: 431},
	{name: "request line too large", request: "GET /" + strings.Repeat("a", 70<<10) + " HTTP/1.1\r\nHost: a\r\n\r\n", detail: "too large", status: 431},
	{name: "no line end at all", request: strings.Repeat("a", 70<<10), detail: "too large", status: 431},
	{name: "too many lines", request: headers(slices.Repeat([]string{"X: a"}, 200)...), detail: "too many", status: 431},

	{name: "chunk size with plus", request: chunks("+1\r\na\r\n0\r\n\r\n"), detail: "hexadecimal", inBody: true},
	{name: "chunk size with minus", request: chunks("-1\r\na\r\n0\r\n\r\n"), detail: "hexadecimal", inBody: true},
	{name: "chunk size with 0x", request: chunks("0x1\r\na\r\n0\r\n\r\n"), detail: "hexadecimal", inBody: true},
	{name: "chunk size of 0 with 0x", request: chunks("0x\r\n\r\n"), detail: "hexadecimal", inBody: true},
	{name: "chunk size with underscore", request: chunks("0_1\r\na\r\n0\r\n\r\n"), detail: "hexadecimal", inBody: true},
	{name: "chunk size too long", request: chunks("00000000000000001\r\na\r\n0\r\n\r\n"), detail: "hexadecimal", inBody: true},
	{name: "chunk size that overflows", request: chunks("10000000000000001\r\na\r\n0\r\n\r\n"), detail: "hexadecimal", inBody: true},
	{name: "chunk size after space", request: chunks(" 1\r\na\r\n0\r\n\r\n"), detail: "hexadecimal", inBody: true},
	{name: "chunk size before space", request: chunks("1 \r\na\r\n0\r\n\r\n"), detail: "hexadecimal", inBody: true},
	{name: "chunk size before tab", request: chunks("1\t;a\r\na\r\n0\r\n\r\n"), detail: "hexadecimal", inBody: true},
	{name: "no chunk size", request: chunks("\r\na\r\n0\r\n\r\n"), detail: "hexadecimal", inBody: true},
	{name: "extension without size", request: chunks(";a\r\na\r\n0\r\n\r\n"), detail: "hexadecimal", inBody: true},
	{name: "chunk size before bare LF", request: chunks("1\na\r\n0\r\n\r\n"), detail: "CR LF", inBody: true},
	{name: "chunk size before bare CR", request: chunks("1\ra\r\n0\r\n\r\n"), detail: "hexadecimal", inBody: true},
	{name: "bare CR in extension", request: chunks("1;a\rb\r\na\r\n0\r\n\r\n"), detail: "extensions", inBody: true},
	{name: "bare LF in extension", request: chunks("1;a\nb\r\na\r\n0\r\n\r\n"), detail: "CR LF", inBody: true},
	{name: "extension too long", request: chunks("1;" + strings.Repeat("a", 2000) + "\r\na\r\n0\r\n\r\n"), detail: "extensions", inBody: true},
	{name: "extensions too long together", request: chunks(strings.Repeat("1;"+strings.Repeat("a", 100)+"\r\na\r\n", 20) + "0\r\n\r\n"), detail: "extensions", inBody: true},
	{name: "chunk longer than said", request: chunks("1\r\nab\r\n0\r\n\r\n"), detail: "followed by CR LF", inBody: true},
	{name: "chunk followed by LF", request: chunks("1\r\na\n0\r\n\r\n"), detail: "CR LF", inBody: true},
	{name: "chunk followed by CR", request: chunks("1\r\na\r0\r\n\r\n"), detail: "followed by CR LF", inBody: true},
	{name: "last chunk before bare LF", request: chunks("0\n\r\n"), detail: "CR LF", inBody: true},
	{name: "trailers end in bare LF", request: chunks("0\r\n\n"), detail: "CR LF", inBody: true},
	{name: "folded trailer", request: chunks("0\r\nSum: 1\r\n 2\r\n\r\n"), detail: "folded", inBody: true},
	{name: "trailer without name", request: chunks("0\r\n: 1\r\n\r\n"), detail: "header name", inBody: true},
	{name: "request for a trailer", request: chunks("0\r\nGET /x HTTP/1.1\r\n\r\n"), detail: "and its colon", inBody: true},
	{name: "NUL in trailer", request: chunks("0\r\nSum: \x00\r\n\r\n"), detail: "control character", inBody: true},
	{name: "CL for a trailer", request: chunks("0\r\nContent-Length: 4\r\n\r\n"), detail: "before the body", inBody: true},
	{name: "TE for a trailer", request: chunks("0\r\nTransfer-Encoding: chunked\r\n\r\n"), detail: "before the body", inBody: true},
	{name: "Host for a trailer", request: chunks("0\r\nHost: b\r\n\r\n"), detail: "before the body", inBody: true},
	{name: "trailer too long", request: chunks("0\r\nSum: " + strings.Repeat("a", 5000) + "\r\n\r\n"), detail: "trailers are too long", inBody: true},
}

func TestW8_AmbiguousRequestsNeverReachAHandler(t *testing.T) {
	t.Parallel()
	const good = "POST /good HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"
	places := []struct {
		name string
		good int
		send func(c *client, bad string)
	}{
		{"first", 0, func(c *client, bad string) { c.send(bad) }},
		{"kept alive", 1, func(c *client, bad string) {
			c.send(good)
			c.wantOK("/good hi")
			c.send(bad)
		}},
		{"pipelined", 2, func(c *client, bad string) {
			c.send(good + good + bad)
			c.wantOK("/good hi")
			c.wantOK("/good hi")
		}},
	}
	for _, drip := range []bool{false, true} {
		for _, place := range places {
			for _, o := range offences {
				t.Run(fmt.Sprintf("%s/%s/drip=%t", o.name, place.name, drip), func(t *testing.T) {
					t.Parallel()
					s := serve(t, drip, rawhead.Options{})
					c := dial(t, s.addr)
					place.send(c, o.request+smuggled)
					c.wantOffence(o)

					whole, broken, refusals := s.seen()
					if want := slices.Repeat([]string{"/good hi"}, place.good); !slices.Equal(whole, want) {
						t.Errorf("handlers saw %q, want %q", whole, want)
					}
					if len(refusals) != 1 || !errors.Is(refusals[0], rawhead.ErrRefused) {
						t.Errorf("told of the refusals %v, want one", refusals)
					}
					for _, err := range broken {
						// net/http has its own word for any error among trailers.
						if !o.inBody || !errors.Is(err, rawhead.ErrRefused) && !strings.Contains(err.Error(), "trailer") {
							t.Errorf("a handler read the body and got %v", err)
						}
					}
				})
			}
		}
	}
}

// wantOffence reads the answer to an offence: the refusal, or the handler's own if
// it had the request already and met the offence in its body.
func (c *client) wantOffence(o offence) {
	c.Helper()
	if o.inBody {
		if start, _ := c.in.Peek(200); strings.Contains(string(start), "text/plain") {
			if r, _ := c.answer(); r.StatusCode != 400 {
				c.Fatalf("the handler answered %d, want 400", r.StatusCode)
			}
			c.wantEnd()
			return
		}
	}
	if o.status == 0 {
		o.status = 400
	}
	c.wantRefusal(o.status, o.detail)
}

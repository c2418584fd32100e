package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

// answers are what a server may send, and the beginning of what it may send next.
var answers = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndoneHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 201 Created\r\nDate: Mon, 02 Jan 2006 15:04:05 GMT\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nContent-Length: 0\r\nX-Empty:\r\n\r\n",
	"HTTP/1.1 200\r\ncontent-length:   5 \t\r\nWWW-Authenticate: Basic\r\nConnection: Keep-Alive\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\bContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\ndone!",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\ndone!",
	"HTTP/1.1 200 OK\r\nContent-Length: +4\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\nContent-Length: 4, 4\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n4\r\ndone\r\n0\r\nX-Sum: 4\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\ndone\r\n0\r\n\r\nmore",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nContent-Length: 1\r\n\r\n1",
	"HTTP/1.1 200 OK\r\nPragma: no-cache\r\nContent-Length: 1\r\n\r\n1",
	"HTTP/1.1 200 OK\r\n\r\nuntil the end",
	"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n",
	"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\nraw",
	"HTTP/1.1 200 OK\nContent-Length: 4\n\ndone",
	"HTTP/1.1 200 OK\r\nX-Folded: a\r\n b\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\nX-Bare: a\rb\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\nX-Name : a\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\n: a\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\nX-Nul: a\x00b\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\nX-Text: \xc3\xa4\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1  200 OK\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 2000 OK\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 000 None\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 999 \r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 \r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 2\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 20\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 a00 OK\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 2a0 OK\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 20a OK\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 2 0 OK\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 :00 OK\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 099 OK\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 200 a\x00b\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 102 Processing\r\nContent-Length: 4\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\nContent-Length: 4a\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-After: a\x7fb\r\n\r\ndone",
	"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTRANSFER-ENCODING: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
	"HTTP/2.0 200 OK\r\nContent-Length: 4\r\n\r\ndone",
	"220 ready\r\n\r\n",
}

// Whatever a server sends, in whatever pieces: it is read as net/http reads it, up to the
// same byte.
func FuzzAnswerIsReadAsNetHTTPDoes(f *testing.F) {
	for i, text := range answers {
		hammer.Add(f, []byte(text), i%5 == 4)
	}
	hammer.Add(f, []byte("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"), true)
	hammer.Fuzz(f, func(t *testing.T, data []byte, head bool) {
		r := &http.Request{Method: http.MethodGet}
		if head {
			r.Method = http.MethodHead
		}
		want := readByNetHTTP(r, data)
		for name, in := range map[string]io.Reader{
			"whole": bytes.NewReader(data), "halves": iotest.HalfReader(bytes.NewReader(data)), "singles": iotest.OneByteReader(bytes.NewReader(data)),
		} {
			if got := readByExchange(r, in); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s of %q: read as\n%+v\nand by net/http as\n%+v", name, data, got, want)
			}
		}
	})
}

// Most answers are parsed here, and not by net/http: otherwise the comparison shows nothing.
func TestUsualAnswersAreParsedHere(t *testing.T) {
	t.Parallel()
	for i, text := range answers {
		x := newTestExchange(&http.Request{Method: http.MethodGet}, strings.NewReader(text))
		if got, want := x.parse([]byte(text)) > 0, i < 4 || strings.Contains(text, "X-Text") || strings.Contains(text, " 999 "); got != want {
			t.Errorf("%q is parsed here: %t, want %t", text, got, want)
		}
	}
}

// A reading is all that is to know of an answer.
type reading struct {
	Informed  []string
	Failed    bool
	Status    string
	Code      int
	Proto     string
	Length    int64
	Close     bool
	Encoding  []string
	Header    http.Header
	Body      string
	BodyEnds  bool
	Trailer   http.Header
	LeftBytes string // what is behind a whole answer
}

func (a *reading) note(res *http.Response, body io.Reader, rest func() string) {
	a.Status, a.Code, a.Proto, a.Length, a.Close = res.Status, res.StatusCode, res.Proto, res.ContentLength, res.Close
	a.Encoding, a.Header = res.TransferEncoding, res.Header.Clone()
	text, err := io.ReadAll(body)
	a.Body, a.BodyEnds = string(text), err == nil
	if err == nil {
		a.Trailer = res.Trailer
		a.LeftBytes = rest()
	}
}

func readByNetHTTP(r *http.Request, data []byte) (a reading) {
	in := bufio.NewReaderSize(bytes.NewReader(data), inBuffer)
	for {
		res, err := http.ReadResponse(in, r)
		if err != nil {
			a.Failed = true
			return a
		}
		if isInformational(res.StatusCode) {
			a.Informed = append(a.Informed, fmt.Sprint(res.StatusCode, res.Header))
			continue
		}
		if res.StatusCode == http.StatusSwitchingProtocols {
			res.Close = true
		}
		a.note(res, res.Body, func() string { return all(in) })
		return a
	}
}

func readByExchange(r *http.Request, from io.Reader) (a reading) {
	x := newTestExchange(r, from)
	x.call.Inform = func(status int, h http.Header) { a.Informed = append(a.Informed, fmt.Sprint(status, h)) }
	conn := x.conn
	if err := x.readFinal(); err != nil {
		a.Failed = true
		return a
	}
	if x.res.StatusCode == http.StatusSwitchingProtocols {
		x.res.Close = true
	}
	x.body.begin(x.res)
	a.note(x.res, x.res.Body, func() string { return all(conn.in) })
	return a
}

func all(in io.Reader) string {
	text, _ := io.ReadAll(in)
	return string(text)
}

// newTestExchange returns an exchange whose request was sent, and whose answer is read from
// a text.
func newTestExchange(r *http.Request, from io.Reader) *exchange {
	s := &socket{Conn: &textConn{from: from}}
	x := new(exchange)
	x.reset(New(&Options{MaxHead: 1 << 20, MaxIdle: 1, IdleTimeout: time.Hour}), &Call{Request: r})
	x.conn, x.cancel = &conn{socket: s, in: bufio.NewReaderSize(s, inBuffer)}, func() bool { return false }
	return x
}

// A textConn has a text to read.
type textConn struct {
	net.Conn
	from io.Reader
}

func (c *textConn) Read(p []byte) (int, error) { return c.from.Read(p) }
func (c *textConn) Close() error               { return nil }

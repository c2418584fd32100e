package rawhead_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/rawhead"
)

func TestPlainRequestsPass(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 10_000)
	cases := []struct{ name, request, said string }{
		{"GET", "GET /a HTTP/1.1\r\nHost: a\r\n\r\n", "/a "},
		{"absolute form", "GET http://a/a HTTP/1.1\r\nHost: a\r\n\r\n", "/a "},
		{"no space after colon", "GET /a HTTP/1.1\r\nHost:a\r\n\r\n", "/a "},
		{"spaces before length", "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length:   2\r\n\r\nhi", "/a hi"},
		{"length with zeros", "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 002\r\n\r\nhi", "/a hi"},
		{"empty and odd values", "GET /a HTTP/1.1\r\nHost: a\r\nX:\r\nY: \t a\tb \r\nZ: caf\xc3\xa9 \xff\r\n\r\n", "/a "},
		{"all of a name's characters", "GET /a HTTP/1.1\r\nHost: a\r\n!#$%&'*+-.^_`|~09AZaz: a\r\n\r\n", "/a "},
		{"names as long as those of the framing", "GET /a HTTP/1.1\r\nHost: a\r\nMaximum-Length: none\r\nContent-Digest: none\r\nAccepted-Encoding: gzip\r\nTransfer-Priority: low\r\n\r\n", "/a "},
		{"every line that is allowed", headers200("/a"), "/a "},
		{"largest head", head64K("/a"), "/a "},
		{"length of 0", "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "/a "},
		{"body", "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", "/a hi"},
		{"body of one byte", "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nh", "/a h"},
		{"body like a head", fmt.Sprintf("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(smuggled), smuggled), "/a " + smuggled},
		{"long body", fmt.Sprintf("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(long), long), "/a " + long},
		{"GET with body", "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", "/a hi"},
		{"chunks", "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n001\r\ni\r\n0\r\n\r\n", "/a hi"},
		{"CHUNKED", "POST /a HTTP/1.1\r\nHost: a\r\ntransfer-encoding: CHUNKED\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "/a hi"},
		{"chunk of line ends", "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n\r\n\r\n\r\n0\r\n\r\n", "/a \r\n\r\n"},
		{"large and small digits", "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\nA\r\n0123456789\r\n00\r\n\r\n", "/a 01234567890123456789"},
		{"long chunk", fmt.Sprintf("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(long), long), "/a " + long},
		{"extensions", "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b;c=\"d;e\"\r\nhi\r\n0;last\r\n\r\n", "/a hi"},
		{"long extensions, of each request anew", "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;" + strings.Repeat("a", 1000) + "\r\nhi\r\n0\r\n\r\n", "/a hi"},
		{"no chunk", "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "/a "},
		{"trailers", "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n2\r\nhi\r\n0\r\nSum: 7\r\nX: y\r\n\r\n", "/a hi 7"},
		{"longest trailers", "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + strings.Repeat("a", 4<<10-len("X: \r\n\r\n")) + "\r\n\r\n", "/a "},
		{"HTTP/1.0 kept alive", "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "/a "},
	}
	for _, drip := range []bool{false, true} {
		for _, c := range cases {
			t.Run(fmt.Sprintf("%s/drip=%t", c.name, drip), func(t *testing.T) {
				t.Parallel()
				s := serve(t, drip, rawhead.Options{})
				conn := dial(t, s.addr)
				conn.send(c.request)
				conn.wantOK(c.said)
				go io.WriteString(conn, strings.Repeat(c.request, 3)) // pipelined; in a goroutine, so that neither side waits for the other's buffer
				for range 3 {
					conn.wantOK(c.said)
				}
				if whole, _, refusals := s.seen(); len(whole) != 4 || len(refusals) > 0 {
					t.Errorf("handlers saw %d requests, refused were %v", len(whole), refusals)
				}
			})
		}
	}
}

func headers200(path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: a\r\n", 199) + "\r\n"
}

func head64K(path string) string {
	start := "GET " + path + " HTTP/1.1\r\nHost: a\r\nX: "
	return start + strings.Repeat("a", 64<<10-len(start)-len("\r\n\r\n")) + "\r\n\r\n"
}

// The limits are exact, whatever the pieces.
func TestOneByteMoreIsTooMuch(t *testing.T) {
	t.Parallel()
	for _, drip := range []bool{false, true} {
		s := serve(t, drip, rawhead.Options{})
		c := dial(t, s.addr)
		c.send(head64K("/aa")) // as large as may be
		c.wantOK("/aa ")
		c.send(strings.Replace(head64K("/aa"), "X: ", "X:  ", 1))
		c.wantRefusal(431, "too large")

		s = serve(t, drip, rawhead.Options{MaxHead: 100, MaxLines: 2})
		c = dial(t, s.addr)
		c.send("GET /a HTTP/1.1\r\nHost: a\r\nX: a\r\nY: a\r\n\r\n")
		c.wantRefusal(431, "too many")
	}
}

func TestContinueComesBeforeTheBody(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"Content-Length: 2\r\n\r\n|hi", "Transfer-Encoding: chunked\r\n\r\n|2\r\nhi\r\n0\r\n\r\n"} {
		s := serve(t, false, rawhead.Options{})
		c := dial(t, s.addr)
		head, rest, _ := strings.Cut(body, "|")
		for range 2 {
			c.send("POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n" + head)
			if r, err := http.ReadResponse(c.in, nil); err != nil || r.StatusCode != 100 {
				t.Fatalf("got %v %v, want 100", r, err)
			}
			c.send(rest)
			c.wantOK("/a hi")
		}
	}
}

// A real client's large bodies come through, with and without a length, over
// connections that it keeps.
func TestLargeBodiesComeThrough(t *testing.T) {
	t.Parallel()
	l := listen(t)
	run(t, rawhead.Listen(l, nil), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("after %d bytes: %v", len(body), err)
		}
		_, _ = w.Write(body)
	}))
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	body := slices.Repeat([]byte("retry\r\nsafe\r\n\r\n"), 200_000)
	for _, sized := range []bool{true, false, true} {
		var in io.Reader = bytes.NewReader(body)
		if !sized {
			in = io.MultiReader(in)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+l.Addr().String(), in)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("sized=%t: %d bytes came back of %d, %v", sized, len(got), len(body), err)
		}
	}
}

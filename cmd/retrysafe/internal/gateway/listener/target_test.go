package listener_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/rawh2"
)

// reset is the status of a stream of HTTP/2 that net/http resets as malformed, where its
// HTTP/1 answers 400.
const reset = rawh2.WasReset

// Where a request goes is judged by one set of rules: what HTTP/1 refuses HTTP/2 refuses
// with the same status, and it reaches no App.
func TestTargetsAreJudgedAlikeInHTTP1AndHTTP2(t *testing.T) {
	t.Parallel()
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.Host+" "+r.RequestURI)
	}, withTLS(t))
	for _, c := range []struct {
		name, method, target, host string
		one, two                   int
	}{
		{"a path", "POST", "/pay?a=b%20c", "x", 200, 200},
		{"a path and a port", "POST", "/pay", "x.example:8443", 200, 200},
		{"an address", "GET", "/", "[::1]:443", 200, 200},
		{"a space in the query", "POST", "/pay?a=b HTTP/1.1", "x", 400, 400},
		{"a space in the path", "POST", "/pay x", "x", 400, 400},
		{"a tab in the query", "POST", "/pay?a\tb", "x", 400, reset},
		{"a line end in the query", "POST", "/pay?a\r\nX: y", "x", 400, reset},
		{"a NUL in the path", "POST", "/pay\x00", "x", 400, reset},
		{"bytes that are not ASCII", "POST", "/caf\xc3\xa9", "x", 400, 400},
		{"bytes that are not ASCII in the query", "POST", "/pay?\xff", "x", 400, 400},
		{"a fragment", "POST", "/off#/pay", "x", 400, 400},
		{"a fragment behind the query", "POST", "/off?a#b", "x", 400, 400},
		{"a URL", "POST", "https://x/pay", "x", 200, 400}, // HTTP/2 has no such form
		{"a URL with a user", "POST", "https://me@x/pay", "x", 400, 400},
		{"a URL without a host", "POST", "https:///pay", "x", 400, 400},
		{"another scheme", "POST", "x:/pay", "x", 400, 400},
		{"a target without a slash", "POST", "pay", "x", 400, reset},
		{"an asterisk", "POST", "*", "x", 400, 400},
		{"a slash in the host", "POST", "/pay", "x/y", 400, 400},
		{"a space in the host", "POST", "/pay", "x y", 400, 400},
		{"a user in the host", "POST", "/pay", "me@x", 400, reset},
		{"a question mark in the host", "POST", "/pay", "x?y", 400, 400},
		{"a fragment in the host", "POST", "/pay", "x#y", 400, 400},
		{"a backslash in the host", "POST", "/pay", `x\y`, 400, 400},
		{"a control character in the host", "POST", "/pay", "x\x01", 400, reset},
		{"bytes that are not ASCII in the host", "POST", "/pay", "caf\xc3\xa9", 400, 400},
		{"an empty host", "POST", "/pay", "", 400, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := s.app(0).served.Load()
			conn := dialTLS(t, s.host(), "http/1.1")
			write(t, conn, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n", c.method, c.target, c.host))
			if res, body := read(t, bufio.NewReader(conn)); res.StatusCode != c.one {
				t.Errorf("HTTP/1 answers %d %s, want %d", res.StatusCode, body, c.one)
			}
			if got := dialHTTP2(t, s.host()).Request(c.method, c.target, c.host); got != c.two {
				t.Errorf("HTTP/2 answers %d, want %d", got, c.two)
			}
			want := int64(0)
			for _, status := range []int{c.one, c.two} {
				if status == 200 {
					want++
				}
			}
			if got := int64(s.app(0).served.Load() - before); got != want {
				t.Errorf("the app was given %d requests, want %d", got, want)
			}
		})
	}
}

// A second name for where a request goes is refused, as a second Host is in HTTP/1.
func TestHTTP2HostBesideAnotherAuthorityIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, nil, withTLS(t))
	for _, c := range []struct {
		host string
		want int
	}{{"x", 200}, {"evil", 400}} {
		if got := dialHTTP2(t, s.host()).Request("POST", "/pay", "x", "host", c.host); got != c.want {
			t.Errorf("host %q beside :authority x: got %d, want %d", c.host, got, c.want)
		}
	}
}

// A tunnel is refused in HTTP/2 as in HTTP/1.
func TestHTTP2ConnectIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, nil, withTLS(t))
	c := dialHTTP2(t, s.host())
	c.Send(rawh2.Headers, rawh2.WholeRequest, 1, rawh2.Literal(":method", "CONNECT")+rawh2.Literal(":authority", "x:443"))
	if got := c.Status(); got != 400 {
		t.Errorf("got %d, want 400", got)
	}
	if n := s.app(0).served.Load(); n != 0 {
		t.Errorf("the app was given %d requests", n)
	}
}

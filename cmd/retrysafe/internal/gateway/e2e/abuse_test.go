package e2e_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What is ambiguous or huge is refused, is never passed on, and costs no memory to
// speak of.
func TestW8_AbuseIsRefused(t *testing.T) {
	t.Parallel()
	s := newService(t)
	g := newGateway(t, conf(s, "sqlite:"+filepath.Join(t.TempDir(), "keys.db"), `  - { match: "POST /decoded", decode: true }`))
	if got, err := g.post(t.Context(), "/payments", "a-key-that-is-fine-1", `{}`); err != nil || got.status != http.StatusCreated {
		t.Fatalf("%+v, %v", got, err)
	}
	calls, before := s.total(), rss(t, g.pid())

	const head = "Host: h\r\nAuthorization: Bearer me\r\nIdempotency-Key: \"a-key-of-an-attacker\"\r\n"
	smuggled := "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 256 {
		_, _ = z.Write(zeros)
	}
	_ = z.Close()
	for name, request := range map[string]string{
		"TE and CL":           "POST /payments HTTP/1.1\r\n" + head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"two CLs":             "POST /payments HTTP/1.1\r\n" + head + "Content-Length: 0\r\nContent-Length: 38\r\n\r\n" + smuggled,
		"two equal CLs":       "POST /payments HTTP/1.1\r\n" + head + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
		"odd encoding":        "POST /payments HTTP/1.1\r\n" + head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"chunked twice":       "POST /payments HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"folded line":         "POST /payments HTTP/1.1\r\n" + head + "X-Folded: one\r\n two\r\nContent-Length: 2\r\n\r\n{}",
		"space before colon":  "POST /payments HTTP/1.1\r\n" + head + "Content-Length : 2\r\n\r\n{}",
		"10 MB of key":        "POST /payments HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer me\r\nContent-Length: 2\r\nIdempotency-Key: \"" + strings.Repeat("k", 10<<20) + "\"\r\n\r\n{}",
		"256 MB in a zip":     "POST /decoded HTTP/1.1\r\n" + head + "Content-Encoding: gzip\r\nContent-Length: " + strconv.Itoa(bomb.Len()) + "\r\n\r\n" + bomb.String(),
		"encoded, undeclared": "POST /payments HTTP/1.1\r\n" + head + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
		"key of 300":          "POST /payments HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer me\r\nContent-Length: 2\r\nIdempotency-Key: \"" + strings.Repeat("k", 300) + "\"\r\n\r\n{}",
	} {
		for _, kept := range []bool{false, true} {
			if status := raw(t, g.addr, request, kept); status < 400 || status > 499 {
				t.Errorf("%s (kept alive: %v): %d", name, kept, status)
			}
		}
	}
	if n := s.total() - calls; n != 0 {
		t.Errorf("%d of them reached the service", n)
	}
	grown := rss(t, g.pid()) - before
	t.Logf("memory grew by %d MiB", grown>>20)
	if grown >= 64<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
}

// raw sends bytes and returns the status of the answer, the first one on its
// connection or the second.
func raw(t *testing.T, addr, request string, kept bool) int {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(conn)
	if kept {
		if _, err := io.WriteString(conn, "GET /.retrysafe/livez HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
	return answerTo(t, conn, in, request)
}

// exchange sends a request on a connection and returns the status of its answer.
func exchange(t *testing.T, conn net.Conn, request string) int {
	t.Helper()
	return answerTo(t, conn, bufio.NewReader(conn), request)
}

func answerTo(t *testing.T, conn net.Conn, in *bufio.Reader, request string) int {
	t.Helper()
	go func() { _, _ = io.WriteString(conn, request) }() // it may be refused in the middle
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Errorf("no answer: %v", err)
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// rss is how much memory a process has.
func rss(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// The service executes and closes the connection without an answer, on a kept-alive
// connection and on a fresh one, with a body and without: it was called once, and
// the gateway does not pretend to know.
func TestW51_ServiceThatHangsUp(t *testing.T) {
	t.Parallel()
	s := newService(t)
	g := newGateway(t, conf(s, "sqlite:"+filepath.Join(t.TempDir(), "keys.db")))
	var hang atomic.Bool
	s.before = func(string) {
		if hang.Load() {
			hangUp()
		}
	}
	for round := range 25 {
		for i, path := range []string{"/payments", "/keyed"} {
			for _, fresh := range []bool{false, true} {
				body := fmt.Sprintf(`{"round": "%d %d %v"}`, round, i, fresh)
				key := fmt.Sprintf("hangs-up-%d-%d-%v", round, i, fresh)
				// A connection that the service closed by itself might be used once
				// more, and then it is not called at all: it says so instead.
				hang.Store(false)
				s.parts.Store(fresh)
				if got, err := g.post(t.Context(), "/payments", key+"-warm", "{}"); err != nil || got.status != http.StatusCreated {
					t.Fatalf("%+v, %v", got, err)
				}
				hang.Store(true)
				first, err := g.post(t.Context(), path, key, body)
				if err != nil || first.status < 400 {
					t.Fatalf("%s: %+v, %v", key, first, err)
				}
				if n, _ := s.called(body); n != 1 {
					t.Fatalf("%s: the service was called %d times", key, n)
				}
				hang.Store(false)
				again, err := g.post(t.Context(), path, key, body)
				n, keys := s.called(body)
				switch {
				case err != nil:
					t.Fatal(err)
				case path == "/payments" && (n != 1 || again.code() != "outcome-unknown"):
					t.Fatalf("%s: called %d times, a retry gets %+v", key, n, again)
				case path == "/keyed" && (keys != 1 || again.status != http.StatusCreated):
					t.Fatalf("%s: under %d keys, a retry gets %+v", key, keys, again)
				}
			}
		}
	}
}

package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// A database behind a dangling symbolic link is created for its owner alone, and one that
// others can read draws a warning with the remedy.
func TestPermissionsOfTheDatabaseFile(t *testing.T) {
	t.Parallel()
	s := newService(t)
	dir := t.TempDir()
	target, link := filepath.Join(dir, "data.db"), filepath.Join(dir, "link.db")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, conf(s, "sqlite:"+link))
	for _, name := range []string{target, target + "-wal", target + "-shm"} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v, %v", name, info, err)
		}
	}
	if strings.Contains(g.log.String(), "chmod") {
		t.Errorf("warned of a file that is its owner's alone:\n%s", g.log)
	}
	g.kill()
	if err := os.Chmod(target, 0o666); err != nil {
		t.Fatal(err)
	}
	g.start()
	g.logs("warning: store: other users of this machine can read or change stored answers, in " + target + " (0666)")
}

// A client cannot have its credential removed on the way to the service.
func TestConnectionAuthorizationIsRefused(t *testing.T) {
	t.Parallel()
	s := newService(t)
	g := newGateway(t, conf(s, "memory:"))
	for _, method := range []string{"POST", "GET"} {
		for _, name := range []string{"Authorization", "Idempotency-Key"} {
			request := fmt.Sprintf("%s /payments HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer me\r\nIdempotency-Key: \"a-key-that-is-fine-1\"\r\n"+
				"Connection: keep-alive, %s\r\nContent-Length: 2\r\n\r\n{}", method, name)
			if status := raw(t, g.addr, request, false); status != http.StatusBadRequest {
				t.Errorf("%s with Connection: %s: %d", method, name, status)
			}
		}
	}
	if n := s.total(); n != 0 {
		t.Errorf("%d of them reached the service", n)
	}
}

// Wrong tokens, however many, do not lock out the right one from the same address. A
// caller without a token is asked for one.
func TestWrongAdminTokensLockNobodyOut(t *testing.T) {
	t.Parallel()
	s := newService(t)
	admin := porthold.Lent(t)
	const token = "the-token-of-operators"
	g := newGateway(t, conf(s, "memory:")+fmt.Sprintf("admin: { listen: %q, token: %s }\n", admin, token))
	ask := func(token string) answer {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		got, err := send(r)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	limited := false
	for i := 0; !limited && i < 10_000; i++ {
		limited = ask(fmt.Sprint("wrong ", i)).status == http.StatusTooManyRequests
	}
	if got := ask(token); !limited || got.status != http.StatusOK {
		t.Errorf("wrong tokens are limited: %v; the right one gets %d", limited, got.status)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+g.addr+"/payments", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", `"a-key-that-is-fine-1"`)
	if got, err := send(r); err != nil || got.status != http.StatusUnauthorized || !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Bearer ") {
		t.Errorf("an anonymous request gets %+v, %v", got, err)
	}
}

// A service that claims a replay, and whose answer ends with its connection before it is
// whole, gives no answer that is stored.
func TestCutAnswerWithoutALengthIsNotStored(t *testing.T) {
	t.Parallel()
	l, err := porthold.New(t).Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveCut(c)
		}
	}()
	g := newGateway(t, fmt.Sprintf("upstream: http://%s\nstore: \"memory:\"\ntenant: { from: bearer }\nroutes:\n"+
		"  - { match: \"POST /payments\" }\n  - { match: \"POST /old\", close_delimited: true }\n", l.Addr()))
	for path, want := range map[string][2]answer{
		"/payments": {{status: http.StatusBadGateway}, {status: http.StatusConflict}},
		"/old":      {{status: http.StatusCreated, body: `{"cut":`}, {status: http.StatusCreated, body: `{"cut":`}},
	} {
		for i, want := range want {
			got, err := g.post(t.Context(), path, "a-key-that-is-fine"+path[1:], `{}`)
			if err != nil || got.status != want.status || want.body != "" && got.body != want.body {
				t.Errorf("%s: %+v, %v", path, got, err)
			}
			if replayed := got.header.Get("Idempotent-Replayed") == "true"; replayed != (i == 1 && path == "/old") {
				t.Errorf("%s: request %d is a replay: %v", path, i, replayed)
			}
		}
	}
}

// serveCut answers the request on a connection with a half and closes it.
func serveCut(c net.Conn) {
	defer c.Close()
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(c, "HTTP/1.1 201 Created\r\nIdempotent-Replayed: true\r\nConnection: close\r\n\r\n{\"cut\":")
}

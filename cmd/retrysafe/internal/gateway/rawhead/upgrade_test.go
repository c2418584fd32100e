package rawhead_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/rawhead"
)

// upgradeable switches on /switch, after an early hint, and else answers with what
// looks like a switch but is none.
func upgradeable(t *testing.T) string {
	t.Helper()
	l := listen(t)
	run(t, rawhead.Listen(l, &rawhead.Options{Upgrades: true}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.URL.Path != "/switch" {
			w.Header().Set("Content-Length", "34")
			_, _ = io.WriteString(w, "\r\n")
			_ = rc.Flush()
			_, _ = io.WriteString(w, "HTTP/1.1 101 Switching Protocols")
			return
		}
		w.WriteHeader(http.StatusEarlyHints)
		conn, rw, err := rc.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	}))
	return l.Addr().String()
}

func TestBytesPassAfterA101(t *testing.T) {
	t.Parallel()
	c := dial(t, upgradeable(t))
	c.send("GET /switch HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	for _, want := range []int{103, 101} {
		if r, err := http.ReadResponse(c.in, nil); err != nil || r.StatusCode != want {
			t.Fatalf("got %v %v, want %d", r, err, want)
		}
	}
	const frames = "\x00\x81\r\n\n\n Host : \xff\r\r\n\r\n"
	c.send(frames)
	got := make([]byte, len(frames))
	if _, err := io.ReadFull(c.in, got); err != nil || string(got) != frames {
		t.Errorf("got %q, %v, want %q", got, err, frames)
	}
}

// After an upgrade that was not granted the heads of the connection are checked as
// before.
func TestW8_AskingForAnUpgradeSwitchesNothing(t *testing.T) {
	t.Parallel()
	const ask = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	const body = "\r\nHTTP/1.1 101 Switching Protocols"
	c := dial(t, upgradeable(t))
	c.send(ask)
	c.wantOK(body)
	c.send(ask + doubled + smuggled)
	c.wantOK(body)
	c.wantRefusal(400, "more than one Host")

	c = dial(t, upgradeable(t))
	c.send("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nUpgrade: echo\r\n\r\n")
	c.wantRefusal(400, "CONNECT")
}

// Only the answer to the request that asks decides, and only while its sender waits.
func TestW8_SwitchIsDecidedOnce(t *testing.T) {
	t.Parallel()
	const ask = "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\nContent-Length: 2\r\n\r\n"
	const ok, switching = "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\n\r\n"
	for name, steps := range map[string][]struct{ read, write string }{
		"answered before the body came":      {{ask, ok}, {"hi", switching}},
		"did not wait":                       {{ask + "hi", ""}, {"G", switching}, {"ET / HTTP/1.1\r\nHost: a\r\n\r\n", ""}},
		"sent another request along":         {{ask + "hi" + plain, switching}},
		"sent a part of another along":       {{ask + "hiG", switching}, {"ET / HTTP/1.1\r\nHost: a\r\n\r\n", ""}},
		"asked again, and got its own no":    {{ask + "hi", ok}, {ask + "hi", ok}, {plain, switching}},
		"asked for nothing, and got a 101":   {{plain, switching}},
		"got a hint, a no and then a switch": {{ask + "hi", "HTTP/1.1 103 Early Hints\r\n\r\n"}, {"", ok}, {"", switching}},
	} {
		s, _, c := pair(t, &rawhead.Options{Upgrades: true})
		buf := make([]byte, 4096)
		for _, step := range steps {
			c.send(step.read)
			if n, err := io.ReadAtLeast(s, buf, len(step.read)); string(buf[:n]) != step.read {
				t.Fatalf("%s: read %q, %v, want %q", name, buf[:n], err, step.read)
			}
			if step.write == "" {
				continue
			}
			if _, err := io.WriteString(s, step.write); err != nil {
				t.Fatal(err)
			}
		}
		c.send(doubled)
		if n, err := s.Read(buf); n != 0 || !errors.Is(err, rawhead.ErrRefused) {
			t.Errorf("%s: read %q, %v, want a refusal", name, buf[:n], err)
		}
	}
}

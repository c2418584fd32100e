package listener_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
)

// soon is a bound that a test waits for.
const soon = 50 * time.Millisecond

// A connection that sends its head slowly is closed, and the App is not called.
func TestSlowHeadsAreCutOff(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*site, *listener.Options){"clear": func(*site, *listener.Options) {}, "tls": withTLS(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, nil, change, func(s *site, _ *listener.Options) { s.config.Server.ReadHeader = soon })
			silent := dial(t, s.host())
			if err := closed(silent); err != nil {
				t.Errorf("a connection that sends nothing: %v", err)
			}
			if name == "tls" {
				return // a handshake may take longer than soon
			}
			slow := dial(t, s.host())
			write(t, slow, "GET / HTTP/1.1\r\nHost: x\r\nX-A")
			if _, err := io.Copy(io.Discard, slow); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a client that stops within a head stays connected")
			}
			if n := s.app(0).served.Load(); n != 0 {
				t.Errorf("the app was given %d requests", n)
			}
		})
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	s := start(t, nil, func(s *site, _ *listener.Options) { s.config.Server.Idle = soon })
	c := dial(t, s.host())
	write(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	r := bufio.NewReader(c)
	read(t, r)
	if err := closed(r); err != nil {
		t.Error(err)
	}
}

// A body must come in time, however slowly its answer is made then.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	const late = time.Second // long enough for a body that is there
	for name, secure := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := make(chan error, 1)
			ended := make(chan error, 1)
			changes := []func(*site, *listener.Options){func(s *site, _ *listener.Options) { s.config.Server.ReadBody = late }}
			if secure {
				changes = append(changes, withTLS(t))
			}
			s := start(t, func(w http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(r.Body)
				read <- err
				if err != nil {
					w.WriteHeader(http.StatusRequestTimeout)
					return
				}
				select { // the answer takes longer than a body may
				case <-r.Context().Done():
					ended <- r.Context().Err()
				case <-time.After(2 * late):
					ended <- nil
				}
			}, changes...)
			c := s.client()

			body, stuck := io.Pipe()
			defer stuck.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.addresses().Main, body)
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = stuck.Write([]byte("so far")) }()
			if res, err := c.Do(req); err == nil {
				res.Body.Close()
			}
			select {
			case err := <-read:
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the body ended with %v, want a time-out", err)
				}
			case <-time.After(enough):
				t.Fatal("a body may take for ever")
			}

			for try := 1; ; try++ {
				sent := time.Now()
				res, err := c.Post(s.addresses().Main, "text/plain", strings.NewReader("whole"))
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				err = <-read
				if err == nil {
					break
				}
				// On a busy machine a whole body may be late too.
				if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(sent) < late || try == 10 {
					t.Fatalf("a whole body: %v", err)
				}
			}
			if err := <-ended; err != nil {
				t.Errorf("a request was cancelled while it was answered: %v", err)
			}
		})
	}
}

// A client that does not read its answer is cut off; a slow handler is not.
func TestStalledReadersAreCutOff(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(4 * soon)
			return
		}
		chunk := make([]byte, 1<<20)
		for {
			if _, err := w.Write(chunk); err != nil {
				failed <- err
				return
			}
		}
	}, func(s *site, _ *listener.Options) { s.config.Server.Write = soon })

	c := dial(t, s.host())
	r := bufio.NewReader(c)
	for range 2 {
		write(t, c, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
		if res, _ := read(t, r); res.StatusCode != 200 {
			t.Fatalf("got %d for a slow answer", res.StatusCode)
		}
	}
	write(t, c, "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
	select {
	case err := <-failed:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the answer ended with %v, want a time-out", err)
		}
	case <-time.After(enough):
		t.Fatal("a client may stall for ever")
	}
}

// What a configuration leaves out is bounded all the same.
func TestZeroConfigurationIsBounded(t *testing.T) {
	t.Parallel()
	for name, got := range listener.Terms(config.Server{}) {
		if got <= 0 {
			t.Errorf("%s is not bounded", name)
		}
	}
}

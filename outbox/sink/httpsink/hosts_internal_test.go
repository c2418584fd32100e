package httpsink

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/outbox"
)

// However a delivery ends, its host's slot is free for the next one, and nothing is kept of
// the host.
func TestEveryDeliveryReleasesItsHost(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Hangs") != "" {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	s, err := New(To(Endpoint{URL: server.URL}), &Options{
		PlainHTTP: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, PerHost: 1, Timeout: time.Minute,
		Read: func(d *outbox.Delivery, _ *Response, _ *outbox.Receipt) {
			if d.Header["X-Panics"] != "" {
				panic("a bug of the application")
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	send := func(ctx context.Context, header string) error {
		d := outbox.Delivery{Message: outbox.Message{Topic: "paid", Key: "k"}}
		if header != "" {
			d.Header = map[string]string{header: "1"}
		}
		return s.Deliver(ctx, []outbox.Delivery{d})[0].Err
	}
	for name, fails := range map[string]func() error{
		"refused": func() error { return send(t.Context(), "Host") },
		"panics":  func() error { return send(t.Context(), "X-Panics") },
		"hangs": func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			return send(ctx, "X-Hangs")
		},
		"waits for its host": func() error {
			release, err := s.hosts.acquire(t.Context(), server.Listener.Addr().String())
			if err != nil {
				return nil
			}
			defer release()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := send(ctx, ""); !errors.Is(err, ErrNotSent) {
				t.Errorf("a message that waits for its host: %v", err)
			}
			if len(s.hosts.slots) != 1 { // the others would not count the one that is under way
				t.Error("a message that waits no longer takes its host's limit along")
			}
			return context.Canceled
		},
	} {
		if fails() == nil {
			t.Errorf("%s: delivered", name)
		}
		s.hosts.mu.Lock()
		kept := len(s.hosts.slots)
		s.hosts.mu.Unlock()
		if kept != 0 {
			t.Fatalf("%s: its host is kept", name)
		}
		if err := send(t.Context(), ""); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	for _, o := range []Options{{Timeout: -1}, {PerHost: -1}, {MaxBody: -1}} {
		if _, err := New(s.route, &o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

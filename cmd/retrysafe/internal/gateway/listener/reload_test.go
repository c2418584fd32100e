package listener_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
)

// post sends a POST that net/http's client does not send twice.
func post(ctx context.Context, c *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, io.NopCloser(strings.NewReader("body")))
	if err != nil {
		return "", err
	}
	res, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != 200 {
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	return string(text), err
}

// load posts without a pause until stop is called, which returns the answers.
func load(t *testing.T, s *site, clients int) (stop func() map[string]int) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := make(map[string]int)
	for range clients {
		c := s.client()
		wg.Go(func() {
			for ctx.Err() == nil {
				text, err := post(context.WithoutCancel(ctx), c, s.addresses().Main)
				if err != nil {
					t.Errorf("a request failed: %v", err)
					return
				}
				mu.Lock()
				answers[text]++
				mu.Unlock()
			}
		})
	}
	return func() map[string]int {
		cancel()
		wg.Wait()
		return answers
	}
}

func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	for name, changes := range map[string][]func(*site, *listener.Options){"HTTP/1": nil, "HTTP/2": {withTLS(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, nil, changes...)
			stop := load(t, s, 8)
			const reloads = 50
			eventually(t, "there is load", func() bool { return s.app(0).served.Load() > 0 || t.Failed() })
			for i := range reloads {
				s.reloadNow()
				now := s.app(i + 1)
				eventually(t, "the new app is given requests", func() bool { return now.served.Load() > 0 || t.Failed() })
			}
			answers := stop()
			if len(answers) != reloads+1 {
				t.Errorf("%d apps have answered, want %d", len(answers), reloads+1)
			}
			for i := range reloads {
				a := s.app(i)
				eventually(t, a.name+" is drained while the server runs", func() bool { return a.drains() == 1 })
			}
		})
	}
}

// Terms and addresses change as quietly as Apps do: clients that go where they are
// told to lose nothing.
func TestReloadOfTermsUnderLoad(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	stop := load(t, s, 4)
	for i := range 10 {
		s.change(func(c *config.Config) { c.Server.MaxHeader = int64(10+i) << 10 })
		now := s.app(i + 1)
		eventually(t, "the new app is given requests", func() bool { return now.served.Load() > 0 || t.Failed() })
	}
	stop()
}

func TestReloadThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	broken := errors.New("line 7: no such field")
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := start(t, nil, withAdmin)
	build := s.build
	good := s.config
	for name, spoil := range map[string]func(){
		"load":        func() { s.load = broken },
		"build":       func() { s.build = func(*config.Config) (listener.App, error) { return nil, broken } },
		"address":     func() { s.config.Listen = taken.Addr().String() },
		"admin":       func() { s.config.Admin.Listen = taken.Addr().String(); s.config.Listen = "localhost:0" },
		"token":       func() { s.config.Admin.Token = "" },
		"certificate": func() { s.config.TLS = config.TLS{CertFile: "absent.pem", KeyFile: "absent.pem"} },
	} {
		t.Run(name, func(t *testing.T) {
			before := s.addresses()
			lines := strings.Count(s.log.String(), "level=ERROR")
			s.mu.Lock()
			spoil()
			s.mu.Unlock()
			s.reloadNow()
			s.mu.Lock()
			s.config, s.load, s.build = good, nil, build
			s.mu.Unlock()
			if after := s.addresses(); after != before {
				t.Errorf("the addresses are %v, want %v", after, before)
			}
			if _, body := get(t, s.client(), before.Main); body != "app 1" {
				t.Errorf("got %q, want the old app", body)
			}
			if status, _ := get(t, s.client(), before.Admin+"/readyz"); status != 200 {
				t.Errorf("/readyz says %d", status)
			}
			if got := strings.Count(s.log.String(), "level=ERROR") - lines; got != 1 {
				t.Errorf("it is logged in %d lines, want one", got)
			}
		})
	}
	if n := s.appsSoFar(); n != 1 {
		t.Errorf("%d apps were built, want none for nothing", n)
	}
}

// A request stays with its App; the App ends after it. Only one App at a time does
// background work, however long that takes: the old one would go on by a configuration
// that has been replaced.
func TestRequestsKeepTheirApp(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(began)
			<-release
		}
	})
	old := s.app(0)
	slow := make(chan error, 1)
	go func() {
		_, err := post(context.WithoutCancel(t.Context()), s.client(), s.addresses().Main+"/slow")
		slow <- err
	}()
	<-began
	s.reloadNow()
	if _, err := post(t.Context(), s.client(), s.addresses().Main); err != nil {
		t.Fatal(err)
	}
	if got := s.app(1).served.Load(); got != 1 {
		t.Errorf("the new app has served %d requests, want 1", got)
	}
	<-old.stopped
	if old.drains() != 0 {
		t.Error("the old app was drained before its requests ended")
	}
	close(release)
	if err := <-slow; err != nil {
		t.Errorf("the slow request: %v", err)
	}
	eventually(t, "the old app is drained", func() bool { return old.drains() == 1 })
}

func TestAddressesChange(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(began)
			<-release
		}
		_, _ = io.WriteString(w, "done")
	}, withAdmin, withKeptPorts)
	before := s.addresses()

	kept := dial(t, s.host())
	r := bufio.NewReader(kept)
	write(t, kept, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	read(t, r)
	slow := dial(t, s.host())
	write(t, slow, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
	<-began

	s.change(func(c *config.Config) {
		c.Listen, c.Admin.Listen, c.Server.MaxConnections = "localhost:0", "localhost:0", 77
	})
	if _, most := s.server.Connections(); most != 77 {
		t.Errorf("at the new address there may be %d connections, want 77", most)
	}
	after := s.addresses()
	if after.Main == before.Main || after.Admin == before.Admin {
		t.Fatalf("the addresses are still %v", after)
	}
	if status, _ := get(t, s.client(), after.Main); status != 200 {
		t.Errorf("got %d at the new address", status)
	}
	if status, _ := get(t, s.client(), after.Admin+"/readyz"); status != 200 {
		t.Errorf("got %d at the new admin address", status)
	}
	for _, old := range []string{before.Main, before.Admin} {
		eventually(t, "the old address is closed", func() bool {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(old, "http://"))
			if err == nil {
				c.Close()
			}
			return err != nil
		})
	}
	// A connection to the old address is served, and soon gets Connection: close.
	eventually(t, "a kept connection is asked to leave", func() bool {
		write(t, kept, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		res, body := read(t, r)
		if body != "done" {
			t.Fatalf("a kept connection got %q", body)
		}
		return res.Close
	})
	close(release)
	if _, body := read(t, bufio.NewReader(slow)); body != "done" {
		t.Errorf("the slow request got %q", body)
	}

	// The admin listener can go altogether, and TLS can come.
	s.change(func(c *config.Config) { c.Admin = config.Admin{}; c.TLS = certify(t, t.TempDir(), 7) })
	if at := s.addresses(); at.Admin != "" || !strings.HasPrefix(at.Main, "https://") {
		t.Errorf("the addresses are %v", at)
	}
	if status, _ := get(t, s.client(), s.addresses().Main); status != 200 {
		t.Errorf("got %d over TLS", status)
	}
	s.change(func(c *config.Config) { c.TLS = config.TLS{} })
	if status, _ := get(t, s.client(), s.addresses().Main); status != 200 || !strings.HasPrefix(s.addresses().Main, "http://") {
		t.Errorf("got %d in clear text again", status)
	}
}

// The sender of reloads may close the channel: the server goes on.
func TestClosedReloadChannel(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	close(s.reload)
	if status, _ := get(t, s.client(), s.addresses().Main); status != 200 {
		t.Errorf("got %d", status)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if n := s.appsSoFar(); n != 1 {
		t.Errorf("%d apps were built", n)
	}
}

package listener_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
)

// Every request that the App was given when the end came is answered.
func TestDrainAnswersWhatWasAccepted(t *testing.T) {
	t.Parallel()
	for name, changes := range map[string][]func(*site, *listener.Options){
		"HTTP/1": {withAdmin, withKeptPorts}, "HTTP/2": {withAdmin, withKeptPorts, withTLS(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const requests = 200
			release := make(chan struct{})
			s := start(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-release
				_, _ = io.WriteString(w, "done")
			}, changes...)
			at := s.addresses()
			c := s.client()
			answers := make(chan error, requests)
			for range requests {
				go func() {
					text, err := post(context.WithoutCancel(t.Context()), c, at.Main)
					if err == nil && text != "done" {
						err = errors.New("half an answer: " + text)
					}
					answers <- err
				}()
			}
			eventually(t, "all requests run", func() bool { return s.app(0).running.Load() == requests })

			s.stop()
			eventually(t, "/readyz says no", func() bool {
				status, body := get(t, s.client(), at.Admin+"/readyz")
				return status == http.StatusServiceUnavailable && body == "draining\n"
			})
			if status, _ := get(t, s.client(), at.Admin+"/livez"); status != 200 {
				t.Errorf("/livez says %d while draining", status)
			}
			eventually(t, "new connections are refused", func() bool {
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.host())
				if err == nil {
					conn.Close()
				}
				return err != nil
			})
			select {
			case <-s.ended:
				t.Fatal("Run ended before its requests")
			default:
			}
			close(release)
			for range requests {
				if err := <-answers; err != nil {
					t.Errorf("an accepted request: %v", err)
				}
			}
			if err := s.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Under load a request is answered or was never given to the App: there is no half.
func TestDrainUnderLoad(t *testing.T) {
	t.Parallel()
	for name, changes := range map[string][]func(*site, *listener.Options){"HTTP/1": nil, "HTTP/2": {withTLS(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 {
				s := start(t, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(w, r.Body)
				}, changes...)
				var answered, failed atomic.Int64
				var wg sync.WaitGroup
				for range 16 {
					c := s.client()
					wg.Go(func() {
						for {
							if _, err := post(context.WithoutCancel(t.Context()), c, s.addresses().Main); err != nil {
								failed.Add(1)
								return
							}
							answered.Add(1)
						}
					})
				}
				eventually(t, "there is load", func() bool { return s.app(0).served.Load() > 200 })
				if err := s.end(); err != nil {
					t.Error(err)
				}
				wg.Wait()
				if got, want := answered.Load(), s.app(0).served.Load(); got != want {
					t.Fatalf("%d requests were given to the app, and %d answered", want, got)
				}
			}
		})
	}
}

// A request that is not whole when the end comes is served or dropped; the App never
// sees half a head.
func TestDrainDropsHalfRequests(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	half := dial(t, s.host())
	write(t, half, "GET / HTTP/1.1\r\nHost: x\r\nX-Ha")
	idle := dial(t, s.host())
	write(t, idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	r := bufio.NewReader(idle)
	read(t, r)
	s.stop()
	if err := closed(r); err != nil {
		t.Errorf("an idle connection: %v", err)
	}
	write(t, half, "lf: 1\r\n\r\n")
	if err := closed(half); err != nil {
		t.Errorf("half a request: %v", err)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if n := s.app(0).served.Load(); n != 1 {
		t.Errorf("the app was given %d requests, want 1", n)
	}
}

// While balancers learn of the end, clients are served and asked to go elsewhere.
func TestDelayLetsBalancersNotice(t *testing.T) {
	t.Parallel()
	const delay = 10 * time.Second // what follows has to happen within it, also on a busy machine
	s := start(t, nil, withAdmin, func(s *site, _ *listener.Options) { s.config.Server.DrainDelay = delay })
	c := dial(t, s.host())
	s.stop()
	eventually(t, "/readyz says no", func() bool {
		status, _ := get(t, s.client(), s.addresses().Admin+"/readyz")
		return status == http.StatusServiceUnavailable
	})
	eventually(t, "draining is logged", func() bool { return strings.Contains(s.log.String(), "draining") })
	write(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if res, body := read(t, bufio.NewReader(c)); body != "app 1" || !res.Close {
		t.Errorf("got %q, close %v", body, res.Close)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

// The drain time ends, whatever a request does; its App is drained all the same, and
// the error says so.
func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	began, cancelled := make(chan struct{}), make(chan struct{})
	s := start(t, func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(cancelled)
	}, func(s *site, _ *listener.Options) { s.config.Server.Drain = soon })
	c := dial(t, s.host())
	write(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-began
	if err := s.end(); err == nil || !strings.Contains(err.Error(), "cut off after 50ms: 1") {
		t.Errorf("got %v, want to be told that a request was cut off", err)
	}
	<-cancelled
	if err := closed(c); err != nil {
		t.Error(err)
	}
}

// A connection that a handler has taken over is waited for and then cut off, too.
func TestDrainOfUpgradedConnections(t *testing.T) {
	t.Parallel()
	echo := func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(c, rw)
	}
	for name, drain := range map[string]time.Duration{"the client leaves": enough, "the client stays": soon} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, echo, func(s *site, o *listener.Options) {
				s.config.Server.Drain = drain
				o.Upgrades = true
			})
			c := dial(t, s.host())
			write(t, c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			r := bufio.NewReader(c)
			if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("got %v, %v", res, err)
			}
			s.stop()
			eventually(t, "draining is logged", func() bool { return strings.Contains(s.log.String(), "draining") })
			if drain == enough {
				write(t, c, "ping")
				if got, err := r.Peek(4); err != nil || string(got) != "ping" {
					t.Errorf("got %q, %v while draining", got, err)
				}
				c.Close()
			}
			if err := s.end(); (err == nil) != (drain == enough) {
				t.Errorf("Run returned %v", err)
			}
		})
	}
}

// Without Options.Upgrades no connection is switched to another protocol.
func TestUpgradesAreRefusedByDefault(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := dial(t, s.host())
	write(t, c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if res, _ := read(t, bufio.NewReader(c)); res.StatusCode != 400 {
		t.Errorf("got %d, want 400", res.StatusCode)
	}
}

// At the end background work is told first, so that it takes up nothing more while
// requests are answered.
func TestBackgroundEndsWithTheLastRequestLetIn(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	s := start(t, func(http.ResponseWriter, *http.Request) {
		close(began)
		<-release
	})
	c := dial(t, s.host())
	write(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-began
	s.stop()
	select {
	case <-s.app(0).stopped:
	case <-time.After(enough):
		t.Fatal("background work goes on while the server ends")
	}
	close(release)
	if res, _ := read(t, bufio.NewReader(c)); res.StatusCode != 200 {
		t.Errorf("got %d", res.StatusCode)
	}
}

// Background work that fails ends the server, in order.
func TestBackgroundFailureEndsTheServer(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	fail := make(chan struct{})
	s := start(t, nil)
	s.mu.Lock()
	s.build = func(*config.Config) (listener.App, error) {
		a := newApp("failing", nil)
		a.runs = func(context.Context) error { <-fail; return broken }
		s.apps = append(s.apps, a)
		return a, nil
	}
	s.mu.Unlock()
	s.reloadNow()
	if status, _ := get(t, s.client(), s.addresses().Main); status != 200 {
		t.Errorf("got %d", status)
	}
	close(fail)
	select {
	case <-s.ended:
	case <-time.After(enough):
		t.Fatal("the server goes on without its background work")
	}
	if !errors.Is(s.err, broken) {
		t.Errorf("got %v, want the cause", s.err)
	}
}

// Background work that ends well has nothing more to do.
func TestBackgroundMayEnd(t *testing.T) {
	t.Parallel()
	s := start(t, nil, func(s *site, _ *listener.Options) {
		s.build = func(*config.Config) (listener.App, error) {
			a := newApp("idle", nil)
			a.runs = func(context.Context) error { return nil }
			s.apps = append(s.apps, a)
			return a, nil
		}
	})
	<-s.app(0).stopped
	if status, _ := get(t, s.client(), s.addresses().Main); status != 200 {
		t.Errorf("got %d", status)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

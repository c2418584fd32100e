package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// probed is a gateway without requests, in virtual time.
func probed(t *testing.T) (*gateway.Gateway, *faultstore.Store, *journal) {
	t.Helper()
	fault, log := faultstore.New(memstore.New(nil)), new(journal)
	g, err := gateway.New(&config.Config{
		Tenant: config.Tenant{From: "none"}, Defaults: settings(), Upstream: "http://127.0.0.1:1", Janitor: config.Janitor{Off: true},
	}, gateway.Parts{Store: fault, Logger: slog.New(slog.NewTextHandler(log, nil))})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
	synctest.Wait()
	return g, fault, log
}

// isWrite reports whether a step writes.
func isWrite(s faultstore.Step) bool { return s.Op == faultstore.Create || s.Op == faultstore.Swap }

// A gateway without requests is not ready while its store is stopped, or takes no
// writes because its disk is full, and is ready again soon after.
func TestReadyzOfAnIdleGatewayFollowsItsStore(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]func(faultstore.Step) faultstore.Fault{
		"stopped": faultstore.FailAll(faultstore.LoseRequest),
		"hangs":   faultstore.FailAll(faultstore.Hang),
		"full disk": func(s faultstore.Step) faultstore.Fault {
			if isWrite(s) {
				return faultstore.LoseRequest
			}
			return faultstore.None
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, fault, log := probed(t)
				must(t, g.Ready())
				for range 2 {
					fault.Plan(plan)
					time.Sleep(10 * time.Second)
					if g.Ready() == nil {
						t.Fatal("it is ready")
					}
					fault.Plan(nil)
					time.Sleep(4 * time.Second)
					must(t, g.Ready())
				}
				if n := strings.Count(log.String(), "not ready"); n != 2 {
					t.Errorf("logged %d times:\n%s", n, log.String())
				}
			})
		})
	}
}

// A request that is told that the store was moved makes the gateway not ready at once,
// although a write has just succeeded.
func TestReadyzIsNoAtOnceWhenTheStoreWasMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, fault, log := probed(t)
		post := func(key string) int {
			r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("{}"))
			r.Header.Set("Idempotency-Key", key)
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			return w.Code
		}
		post(`"a-key-from-before-the-move"`)
		must(t, g.Ready())
		fault.Plan(faultstore.FailAll(faultstore.Moved))
		if got := post(`"a-key-from-after-the-move"`); got != http.StatusServiceUnavailable {
			t.Errorf("got %d", got)
		}
		for range 10 {
			if err := g.Ready(); !errors.Is(err, storemove.ErrMoved) {
				t.Errorf("Ready = %v", err)
			}
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "not ready"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, log.String())
		}
	})
}

// An idle gateway costs its store one write in five seconds, of one record that others
// write too.
func TestProbeWritesOneRecordAtItsPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, fault, _ := probed(t)
		second, err := gateway.New(&config.Config{
			Tenant: config.Tenant{From: "none"}, Defaults: settings(), Upstream: "http://127.0.0.1:1", Janitor: config.Janitor{Off: true},
		}, gateway.Parts{Store: fault})
		must(t, err)
		must(t, second.Ready()) // it has taken the record over
		for range 1000 {
			must(t, g.Ready())
		}
		fault.Plan(nil)
		time.Sleep(time.Minute)
		if n := fault.Count(faultstore.Create) + fault.Count(faultstore.Swap); n < 12 || n > 14 {
			t.Errorf("%d writes in a minute", n)
		}
		all, err := fault.List(t.Context(), retrysafe.Query{})
		if err != nil || len(all) != 1 || !all[0].IsSystem() {
			t.Errorf("the store has %v, %v", all, err)
		}
	})
}

// A gateway whose requests write needs no probe.
func TestProbeRestsWhileRequestsWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, fault, _ := probed(t)
		fault.Plan(nil)
		for i := range 20 {
			r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("{}"))
			r.Header.Set("Idempotency-Key", fmt.Sprintf(`"a-key-that-is-fine-%d"`, i))
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			if w.Code != http.StatusServiceUnavailable {
				t.Fatalf("an upstream that is not there: %d %s", w.Code, w.Body)
			}
			time.Sleep(3 * time.Second)
		}
		if n := fault.Count(faultstore.Create) + fault.Count(faultstore.Swap); n != 40 {
			t.Errorf("%d writes for 20 requests, want their reservations and releases", n)
		}
	})
}

// The record of the probe is gone, as after a day without writes and a purge, or in a
// store that was restored: the probe makes it anew.
func TestReadyzWhenTheRecordOfTheProbeIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, fault, _ := probed(t)
		must(t, g.Ready())
		fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		time.Sleep(25*time.Hour + time.Second/2) // between two turns of the probe
		fault.Plan(nil)
		if n, err := fault.Purge(t.Context(), 10); n != 1 || err != nil {
			t.Fatalf("purged %d, %v", n, err)
		}
		time.Sleep(10 * time.Second)
		must(t, g.Ready())
	})
}

// contested is a store in which another gateway always writes the probe's record first.
type contested struct{ retrysafe.Store }

func (s contested) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if !w.IsSystem() {
		return s.Store.Swap(ctx, w)
	}
	r, err := s.Load(ctx, w.Ref)
	if err == nil {
		err = retrysafe.ErrConflict
	}
	return r, err
}

// A store in which the writes of other gateways succeed takes writes.
func TestReadyzWhileOthersWriteTheRecordOfTheProbe(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	for _, s := range []retrysafe.Store{store, contested{store}} {
		b := build(t, over(s))
		must(t, b.Ready())
	}
}

// A breaker that failed writes have opened is closed by a write, though every read was
// answered, and though no request arrives.
func TestReadyzAfterAFullDisk(t *testing.T) {
	t.Parallel()
	fault := faultstore.New(memstore.New(nil))
	b := setup(t, over(fault))
	fault.Plan(func(s faultstore.Step) faultstore.Fault {
		if isWrite(s) {
			return faultstore.LoseRequest
		}
		return faultstore.None
	})
	for range 8 {
		b.post(t, "/payments", key, `{}`).refused(t, http.StatusServiceUnavailable, "store-unavailable")
	}
	for range 3 {
		if b.Ready() == nil {
			t.Fatal("it is ready with a store that takes no writes")
		}
	}
	fault.Plan(nil)
	b.run(t)
	for b.Ready() != nil {
		time.Sleep(time.Millisecond)
	}
	b.post(t, "/payments", key, `{}`).is(t, 201, `{"got":{}}`, false)
}

package listener

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A stubborn app ends when it likes.
type stubborn struct {
	http.Handler
	run, drain func(context.Context) error
}

func (s stubborn) Run(ctx context.Context) error   { return s.run(ctx) }
func (s stubborn) Drain(ctx context.Context) error { return s.drain(ctx) }
func (s stubborn) Ready() error                    { return nil }

func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func newGeneration(t *testing.T, run, drain func(context.Context) error) *generation {
	g := &generation{app: stubborn{run: run, drain: drain}, ran: make(chan struct{}), empty: make(chan struct{})}
	g.run(t.Context(), func(error) {})
	return g
}

// However requests and the end of a generation meet, it is empty when the last of its
// requests has left, and not before.
func TestGenerationIsEmptyAfterItsLastRequest(t *testing.T) {
	t.Parallel()
	for range 200 {
		g := newGeneration(t, untilDone, untilDone)
		var inside atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for g.enter() {
					inside.Add(1)
					select {
					case <-g.empty:
						t.Error("it is empty while a request runs")
					default:
					}
					inside.Add(-1)
					g.leave()
				}
			})
		}
		g.close()
		<-g.empty
		if n := inside.Load(); n != 0 {
			t.Errorf("it is empty, and %d requests run", n)
		}
		wg.Wait()
		if n := g.requests(); n != 0 {
			t.Errorf("it counts %d requests", n)
		}
		g.stop()
		<-g.ran
	}
}

// What does not end is told, once its time is over, and the App is drained all the
// same, with time to record.
func TestFinishIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		broken := errors.New("broken")
		g := newGeneration(t,
			func(context.Context) error { <-release; return nil },
			func(ctx context.Context) error {
				if end, ok := ctx.Deadline(); !ok || time.Until(end) != settleGrace {
					t.Errorf("there are %v to record", time.Until(end))
				}
				return broken
			})
		g.enter()
		g.close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := g.finish(ctx)
		if took := time.Since(began); took != settleGrace {
			t.Errorf("it took %v, want %v", took, settleGrace)
		}
		for _, want := range []string{"requests that do not end: 1", "background work does not end"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
		}
		if !errors.Is(err, broken) {
			t.Errorf("got %v, want what Drain says in it", err)
		}
		close(release)
		<-g.ran
	})
}

// An earlier App is drained when its last request has ended, however long that takes; its
// background work ends at once.
func TestEarlierAppIsDrainedAfterItsLastRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		s.o.Logger = slog.New(slog.DiscardHandler)
		var drained atomic.Bool
		g := newGeneration(t, untilDone, func(context.Context) error { drained.Store(true); return nil })
		if !g.enter() {
			t.Fatal("it takes no request")
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.retire(t.Context(), g, limits{drain: time.Second})
		}()
		<-g.ran
		time.Sleep(time.Hour)
		if drained.Load() {
			t.Error("it is drained while it serves a request")
		}
		g.leave()
		<-ended
		if !drained.Load() {
			t.Error("it is not drained")
		}
	})
}

// A request that arrives after the server has ended gets a 503.
func TestNobodyServesAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := new(Server)
	g := newGeneration(t, untilDone, untilDone)
	s.current.Store(g)
	g.close()
	g.stop()
	for name, serve := range map[string]http.HandlerFunc{"main": s.serveMain, "admin": s.servePage} {
		w := httptest.NewRecorder()
		serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: got %d, want 503", name, w.Code)
		}
	}
}

// An earlier configuration's trouble does not end the server.
func TestOnlyTheCurrentBackgroundEndsTheServer(t *testing.T) {
	t.Parallel()
	s := &Server{failed: make(chan error, 1)}
	s.o.Logger = slog.New(slog.DiscardHandler)
	now, old := new(generation), new(generation)
	s.current.Store(now)
	s.backgroundFailed(old, errors.New("old"))
	if len(s.failed) != 0 {
		t.Error("an earlier one ends it")
	}
	for range 2 {
		s.backgroundFailed(now, errors.New("now"))
	}
	if len(s.failed) != 1 {
		t.Error("its own does not end it")
	}
}

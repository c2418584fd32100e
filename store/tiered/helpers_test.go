package tiered_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// A clock is a time that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A bed is a cache over a store that counts its steps and fails as planned, over
// one in memory. All have one clock.
type bed struct {
	*clock
	t     *testing.T
	cache tiered.Store
	steps *faultstore.Store
	mem   *memstore.Store
}

func newBed(t *testing.T, opts tiered.Options) *bed {
	c := newClock()
	b := &bed{clock: c, t: t, mem: memstore.New(&memstore.Options{Now: c.Now})}
	b.steps = faultstore.New(b.mem)
	opts.Now = c.Now
	b.cache = tiered.New(b.steps, &opts)
	return b
}

// count returns how many steps of any kind the store below was asked for since
// the last count.
func (b *bed) count() int {
	n := 0
	for _, op := range []faultstore.Op{faultstore.Create, faultstore.Swap, faultstore.Load, faultstore.List, faultstore.Purge} {
		n += b.steps.Count(op)
	}
	b.steps.Plan(nil)
	return n
}

var ref = retrysafe.Ref{Scope: "acct_1", Key: "8e03978e"}

func owner(n byte) retrysafe.Owner { return retrysafe.Owner{'o', 15: n} }

// reservation returns the write that reserves ref for the n-th owner.
func reservation(ref retrysafe.Ref, n byte) retrysafe.Write {
	return retrysafe.Write{Record: retrysafe.Record{
		Ref: ref, Operation: "POST /payments", Fingerprint: retrysafe.Fingerprint{Alg: 1},
		State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion,
		Owner: owner(n), Attempt: 1, Retain: time.Hour,
	}, Term: time.Minute}
}

// with returns w as a write of a completed record that holds body for an hour.
func with(body string, w retrysafe.Write) retrysafe.Write {
	w.State, w.Term = retrysafe.StateCompleted, time.Hour
	w.Result = &retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte(body)}
	return w
}

// settled returns the write that completes the stored record r with body.
func settled(body string, r retrysafe.Record) retrysafe.Write { return with(body, r.Update()) }

// complete stores an answer under ref in s.
func complete(tb testing.TB, s retrysafe.Store, ref retrysafe.Ref, body string) retrysafe.Record {
	tb.Helper()
	r, err := s.Create(tb.Context(), reservation(ref, 1))
	if err != nil {
		tb.Fatalf("create: %v", err)
	}
	return swap(tb, s, settled(body, r))
}

func swap(tb testing.TB, s retrysafe.Store, w retrysafe.Write) retrysafe.Record {
	tb.Helper()
	got, err := s.Swap(tb.Context(), w)
	if err != nil {
		tb.Fatalf("swap: %v", err)
	}
	return got
}

// retry is the Create of a client that retries.
func retry(ctx context.Context, s retrysafe.Store, ref retrysafe.Ref) (retrysafe.Record, error) {
	return s.Create(ctx, reservation(ref, 99))
}

// replays makes sure that a retry gets an answer, and from where: it takes asks
// steps of the store below.
func (b *bed) replays(when, body string, asks int) retrysafe.Record {
	b.t.Helper()
	b.count()
	got, err := retry(b.t.Context(), b.cache, ref)
	switch {
	case !errors.Is(err, retrysafe.ErrExists):
		b.t.Fatalf("%s: a retry got %v, want ErrExists", when, err)
	case got.State != retrysafe.StateCompleted || got.Result == nil || string(got.Result.Body) != body:
		b.t.Fatalf("%s: a retry got %v %+v, want %q", when, got.State, got.Result, body)
	}
	if n := b.count(); n != asks {
		b.t.Fatalf("%s: a retry took %d steps of the store below, want %d", when, n, asks)
	}
	return got
}

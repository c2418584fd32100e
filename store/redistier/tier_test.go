package redistier_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/recoverytest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/redistier"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/store/storetest"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// A tier keeps the whole contract of a store, over one that does. Its peers are other
// processes that share the Redis server.
func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		below, opts := newBelow(), options()
		return storetest.Harness{
			Store: open(t, below, opts), Peers: []retrysafe.Store{open(t, below, opts)},
			Begin: func(ctx context.Context) (retrysafe.Tx, error) { return below.Begin(ctx) },
		}
	})
}

func TestW54_ReapersRaceWithRetries(t *testing.T) {
	t.Parallel()
	recoverytest.RaceReapers(t, place(t))
}

func TestW55_StaleSweepersOverwriteNothing(t *testing.T) {
	t.Parallel()
	recoverytest.RaceSweepers(t, place(t))
}

func place(t *testing.T) recoverytest.Place {
	t.Helper()
	below, opts := newBelow(), options()
	return recoverytest.Place{Store: open(t, below, opts), Peers: []retrysafe.Store{open(t, below, opts)}}
}

// counted counts what reaches the store below.
type counted struct {
	*memstore.Store
	creates, loads atomic.Int64
}

func (c *counted) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	c.creates.Add(1)
	return c.Store.Create(ctx, w)
}

func (c *counted) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	c.loads.Add(1)
	return c.Store.Load(ctx, ref)
}

// What one process has read from the store below another one has from Redis. Reservations
// always go below.
func TestOneReadServesAllProcesses(t *testing.T) {
	t.Parallel()
	below, opts := &counted{Store: memstore.New(nil)}, options()
	one, two := open(t, below, opts), open(t, below, opts)
	rec := answered(t, below.Store, "key")
	for i, s := range []*redistier.Store{one, two, one, two} {
		got, err := s.Create(t.Context(), newWrite("key"))
		if !errors.Is(err, retrysafe.ErrExists) || got.Revision != rec.Revision || string(got.Result.Body) != "paid key" {
			t.Fatalf("Create %d: %v, %v", i, err, got)
		}
	}
	if n := below.creates.Load(); n != 1 {
		t.Errorf("the store below was asked %d times, want once", n)
	}
	for range 3 {
		_, err := two.Create(t.Context(), newWrite("fresh"))
		if err != nil && !errors.Is(err, retrysafe.ErrExists) {
			t.Fatal(err)
		}
	}
	if n := below.creates.Load(); n != 4 {
		t.Errorf("the store below has seen %d of 3 calls for a key in flight", n-1)
	}
	if hits, misses := two.Hits(); hits != 2 || misses != 3 {
		t.Errorf("the second process has %d hits and %d misses, want 2 and 3", hits, misses)
	}
}

// An operator's change reaches Redis through the feed of the store below, from any process
// and whichever process has stored the answer there.
func TestOperatorsChangeIsDroppedFromRedis(t *testing.T) {
	t.Parallel()
	below, opts := newBelow(), options()
	shared := open(t, below, opts)
	cache := tiered.New(shared, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- cache.Run(ctx) }()
	defer func() {
		cancel()
		must(t, <-done)
	}()
	rec := answered(t, below, "key")
	within(t, "the answer is used from Redis", func() bool {
		_, err := shared.Load(t.Context(), rec.Ref)
		must(t, err)
		hits, _ := shared.Hits()
		return hits > 0
	})
	// Another process, which has no tier at all, erases the answer.
	w := rec.Update()
	w.Result, w.Announce, w.Term = &retrysafe.Result{Status: 410}, true, time.Hour
	changed, err := below.Swap(t.Context(), w)
	must(t, err)
	within(t, "the change is seen in both tiers", func() bool {
		a, err := cache.Load(t.Context(), rec.Ref)
		must(t, err)
		b, err := shared.Load(t.Context(), rec.Ref)
		must(t, err)
		return a.Revision == changed.Revision && b.Revision == changed.Revision
	})
	// It stays so: what is in Redis now was read after the change.
	for range 10 {
		if got, err := shared.Load(t.Context(), rec.Ref); err != nil || got.Revision != changed.Revision {
			t.Fatalf("Load after the change: %v, revision %d, want %d", err, got.Revision, changed.Revision)
		}
	}
}

// slow is a store below whose reply to a Load waits until the test lets it go.
type slow struct {
	*memstore.Store
	read, release chan struct{}
}

func (s *slow) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	r, err := s.Store.Load(ctx, ref)
	s.read <- struct{}{}
	<-s.release
	return r, err
}

// A record that was read before a change, and comes back after it, is not stored.
func TestReadFromBeforeAChangeIsNotStored(t *testing.T) {
	t.Parallel()
	mem, opts := memstore.New(nil), options()
	rec := answered(t, mem, "key")
	below := &slow{mem, make(chan struct{}), make(chan struct{})}
	late, other := open(t, below, opts), open(t, mem, opts)
	got := make(chan error, 1)
	go func() {
		_, err := late.Load(t.Context(), rec.Ref)
		got <- err
	}()
	<-below.read
	w := rec.Update()
	w.Result, w.Announce, w.Term = &retrysafe.Result{Status: 410}, true, time.Hour
	changed, err := other.Swap(t.Context(), w)
	must(t, err)
	close(below.release)
	must(t, <-got)
	if r, err := other.Load(t.Context(), rec.Ref); err != nil || r.Revision != changed.Revision {
		t.Errorf("Load after the change: %v, revision %d, want %d: the old record was stored behind it", err, r.Revision, changed.Revision)
	}
}

// A process that begins to follow changes trusts nothing that was stored before: a change
// may have happened that no process has dropped.
func TestNothingFromBeforeTheFeedIsTrusted(t *testing.T) {
	t.Parallel()
	below, opts := newBelow(), options()
	first := open(t, below, opts)
	rec := answered(t, below, "key")
	_, err := first.Load(t.Context(), rec.Ref)
	must(t, err)
	w := rec.Update()
	w.Result, w.Announce, w.Term = &retrysafe.Result{Status: 410}, true, time.Hour
	changed, err := below.Swap(t.Context(), w)
	must(t, err)

	second := open(t, below, opts)
	_, _, err = second.Changes(t.Context(), "")
	must(t, err)
	if r, err := second.Load(t.Context(), rec.Ref); err != nil || r.Revision != changed.Revision {
		t.Errorf("Load by a process that has just begun: %v, revision %d, want %d", err, r.Revision, changed.Revision)
	}
}

// A Redis server that is gone costs no answer: the store below is asked.
func TestRedisMayBeGone(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	below, opts := &counted{Store: memstore.New(nil)}, options()
	opts.Timeout = 100 * time.Millisecond
	s := openAt(t, server.Addr(), below, opts)
	rec := answered(t, s, "key")
	must(t, server.Kill())
	for range 3 {
		got, err := s.Load(t.Context(), rec.Ref)
		must(t, err)
		if got.Revision != rec.Revision {
			t.Errorf("Load without Redis: revision %d, want %d", got.Revision, rec.Revision)
		}
		w := got.Update()
		w.Term = time.Hour
		_, err = s.Swap(t.Context(), w)
		must(t, err)
		rec, err = s.Load(t.Context(), rec.Ref)
		must(t, err)
	}
	must(t, server.Restart(t.Context()))
	within(t, "Redis is used again", func() bool {
		_, err := s.Load(t.Context(), rec.Ref)
		must(t, err)
		hits, _ := s.Hits()
		return hits > 0
	})
}

func TestMistakesAreRefused(t *testing.T) {
	t.Parallel()
	keys, err := sealed.NewKeyring(bytes.Repeat([]byte("i"), sealed.KeySize), 1, map[uint32][]byte{1: bytes.Repeat([]byte("1"), sealed.KeySize)})
	must(t, err)
	sealing, err := sealed.New(memstore.New(nil), keys)
	must(t, err)
	for name, c := range map[string]struct {
		url   string
		below retrysafe.Store
		opts  *redistier.Options
		want  string
	}{
		"no store":  {"redis://h", nil, nil, "no store below"},
		"plaintext": {"redis://h", sealing, nil, "in front of this one"},
		"cluster":   {"redis+cluster://h", memstore.New(nil), nil, "different clocks"},
		"another":   {"http://h", memstore.New(nil), nil, "a Redis URL is"},
		"negative":  {"redis://h", memstore.New(nil), &redistier.Options{MaxBytes: -1}, "negative"},
		"prefix":    {"redis://h", memstore.New(nil), &redistier.Options{Prefix: "a b"}, "Prefix"},
	} {
		if _, err := redistier.Open(c.url, c.below, c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
}

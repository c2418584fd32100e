// Package movetest holds a store to the contract of package storemove: what the store
// does while "retrysafe keys copy" moves its records to another one. What a whole move
// promises is tested in package move.
package movetest

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/outbox"
)

// A Store is a store that records can be moved from and to.
type Store interface {
	retrysafe.Store
	Mover() storemove.Store
}

// A Harness is one empty store, and what a test needs to know of its database. A test
// that does not use a function does not need it to be set.
type Harness struct {
	// Open opens the store as a further process would, even while a move has closed it if
	// moving is set. The test does not close what it returns.
	Open func(ctx context.Context, moving bool) (Store, error)
	// Begin begins a transaction of the caller's that can write. Nil: the store has none.
	Begin func(ctx context.Context, s Store) (retrysafe.Tx, error)
	// BeginIdle begins a transaction that has used the database, and has no lock that
	// another transaction would wait for.
	BeginIdle func(ctx context.Context, s Store) (retrysafe.Tx, error)
	// Outbox returns the store's outbox.
	Outbox func(s Store) outbox.Store
	// Exec runs a statement in the database. Nil: there are no tables.
	Exec func(t *testing.T, statement string)
	// Purge deletes two records that are due and final. Nil: the store purges nothing while
	// it is followed.
	Purge func(t *testing.T, s Store, due [2]retrysafe.Ref)
	// Triggers returns how many triggers a move has left in the database. Nil: it has none.
	Triggers func(t *testing.T) int
	// ExpireLog sets the end of the log of written keys to a time in the past.
	ExpireLog func(t *testing.T)
	// Missed returns how many rows of the log say that a write was missed. Nil: the
	// database does not tell.
	Missed func(t *testing.T) int
	// LoadsClosed says that a store which was opened while it is closed can load its
	// records.
	LoadsClosed bool
	// CutEndsRun says that a run whose cut has failed does not follow the store any more.
	CutEndsRun bool
	// Waits reports whether a transaction waits for the lock of another one. Nil: the
	// database does not tell.
	Waits func(t *testing.T) bool
}

var run = retrysafe.Owner{7}

func (h *Harness) open(t *testing.T) Store {
	t.Helper()
	s, err := h.Open(t.Context(), false)
	must(t, err)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }

// fresh is the reservation of a key, by a new owner each time.
func fresh(key string) retrysafe.Write {
	w := retrysafe.Write{Term: time.Minute, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "acct_1", Key: key}, Operation: "book", Fingerprint: retrysafe.Fingerprint{Alg: 1},
		State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1, Retain: time.Hour,
	}}
	_, _ = rand.Read(w.Owner[:])
	return w
}

// done is the write that gives r an answer.
func done(r retrysafe.Record, answer string) retrysafe.Write {
	w := r.Update()
	w.State, w.Term, w.Result = retrysafe.StateCompleted, time.Hour, &retrysafe.Result{Status: 201, Body: []byte(answer)}
	return w
}

// put stores a key that is completed.
func put(t *testing.T, s Store, key string) {
	t.Helper()
	r, err := s.Create(t.Context(), fresh(key))
	must(t, err)
	must(t, second(s.Swap(t.Context(), done(r, "the answer of "+key))))
}

// within runs do in a transaction of the caller's and ends it.
func (h *Harness) within(t *testing.T, s Store, end func(retrysafe.Tx, context.Context) error, do func(retrysafe.Tx) error) {
	t.Helper()
	tx, err := h.Begin(t.Context(), s)
	must(t, err)
	must(t, do(tx))
	must(t, end(tx, t.Context()))
}

// refusedWithin tests that do fails in a transaction of the caller's, or else the commit.
func (h *Harness) refusedWithin(t *testing.T, s Store, what string, do func(retrysafe.Tx) error) {
	t.Helper()
	tx, err := h.Begin(t.Context(), s)
	if err != nil {
		return
	}
	if do(tx) == nil && tx.Commit(t.Context()) == nil {
		t.Errorf("%s succeeds", what)
	}
	_ = tx.Rollback(t.Context())
}

// names are the keys of what Written and Retire return.
func names(written []retrysafe.Record, gone []retrysafe.Ref) (all []string) {
	for i := range written {
		all = append(all, written[i].Key)
	}
	for _, ref := range gone {
		all = append(all, "no "+ref.Key)
	}
	slices.Sort(all)
	return all
}

// retire retires s and returns what was left to copy.
func retire(ctx context.Context, s Store) (rest []string, err error) {
	err = s.Mover().Retire(ctx, run, "elsewhere", func(_ context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error {
		rest = append(rest, names(written, gone)...)
		return nil
	})
	return rest, err
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for start := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("a minute has passed, and not yet: %s", what)
		}
	}
}

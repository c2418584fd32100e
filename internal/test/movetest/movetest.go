// Package movetest holds a store to the contract of package storemove: what the store
// does while "retrysafe keys copy" moves its records to another one. What a whole move
// promises is tested in package move.
package movetest

import (
	"context"
	"crypto/rand"
	"reflect"
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

// fill sets all fields of a record that neither its store sets nor fresh has set.
func fill(r *retrysafe.Record) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	r.KeyText, r.Request, r.Attempt, r.Lapse, r.Effects = []byte("sealed"), []byte("request"), 3, retrysafe.LapseFail, retrysafe.EffectsKeyed
	r.Checkpoint = retrysafe.Checkpoint{Phase: "charged", Data: []byte("ch_1")}
	r.ProviderRef, r.Reason = "ch_1", "because"
	r.Result = &retrysafe.Result{Status: 201, Header: map[string][]string{"Location": {"/p/1"}, "X-Two": {"a", "b"}}, Body: []byte("answer"), Omitted: true}
	r.Inquiry = retrysafe.Inquiry{
		Tries: 2, Dead: true, Disputed: true,
		Notes: []retrysafe.Note{{At: at, By: "operator anna", State: retrysafe.StateUnknown, Text: "asked", ID: "a-1"}},
	}
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

// asStored tests that the records which a move gets are whole: as the store has shown them
// just then, and read at a time by which their deadlines can be carried over.
func asStored(t *testing.T, written []retrysafe.Record, shown func(ref retrysafe.Ref) retrysafe.Record) {
	t.Helper()
	for i := range written {
		got, want := written[i], shown(written[i].Ref)
		if got.ReadAt.Before(want.UpdatedAt) || got.ReadAt.Sub(want.ReadAt).Abs() > 10*time.Minute {
			t.Errorf("%s, which was written at %v, was read at %v, and by a step at %v", got.Key, want.UpdatedAt, got.ReadAt, want.ReadAt)
		}
		if got.ReadAt = want.ReadAt; !reflect.DeepEqual(got, want) {
			t.Errorf("the move gets %+v, and stored is %+v", got, want)
		}
	}
}

// load reads a record that is there.
func load(t *testing.T, s Store, ref retrysafe.Ref) retrysafe.Record {
	t.Helper()
	r, err := s.Load(t.Context(), ref)
	must(t, err)
	return r
}

// retire retires s and returns what was left to copy.
func retire(ctx context.Context, s Store) (rest []string, err error) {
	written, gone, err := retireWhole(ctx, s)
	return names(written, gone), err
}

// retireWhole is retire with the records.
func retireWhole(ctx context.Context, s Store) (written []retrysafe.Record, gone []retrysafe.Ref, err error) {
	err = s.Mover().Retire(ctx, run, "elsewhere", func(_ context.Context, some []retrysafe.Record, others []retrysafe.Ref) error {
		written, gone = append(written, some...), append(gone, others...)
		return nil
	})
	return written, gone, err
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

package recoverytest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/retrysafe/retrysafe"
)

// A witness records each confirmed write and each record that was returned.
type witness struct {
	mu     sync.Mutex
	writes map[retrysafe.Ref]map[int64]write // by revision
	seen   map[retrysafe.Ref]map[int64]retrysafe.Record
	shown  []shown
	broken []error
	counts map[string]int
}

// A write is one step that changed a record.
type write struct {
	by     string
	record retrysafe.Record // as stored
	from   int64            // the revision that it was compared with; 0 for a Create
	claims bool
}

// shown is an answer that a client got.
type shown struct {
	ref retrysafe.Ref
	out retrysafe.Outcome
}

func newWitness() *witness {
	return &witness{
		writes: make(map[retrysafe.Ref]map[int64]write), seen: make(map[retrysafe.Ref]map[int64]retrysafe.Record),
		counts: make(map[string]int),
	}
}

// violation records that a rule is broken.
func (w *witness) violation(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, fmt.Errorf(format, args...))
}

// tally counts events, to show that a run was not idle.
func (w *witness) tally(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

func (w *witness) wrote(e write) {
	w.saw(&e.record)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writes[e.record.Ref] == nil {
		w.writes[e.record.Ref] = make(map[int64]write)
	}
	if _, again := w.writes[e.record.Ref][e.record.Revision]; !again { // a repeated Create returns the same revision
		w.writes[e.record.Ref][e.record.Revision] = e
	}
}

// saw compares a record with other copies of the same revision.
func (w *witness) saw(r *retrysafe.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[r.Ref] == nil {
		w.seen[r.Ref] = make(map[int64]retrysafe.Record)
	}
	before, ok := w.seen[r.Ref][r.Revision]
	if !ok {
		w.seen[r.Ref][r.Revision] = *r
		return
	}
	if before.State != r.State || before.Owner != r.Owner || !before.Result.Equal(r.Result) {
		w.broken = append(w.broken, fmt.Errorf("%v is seen in two shapes at revision %d: %v and %v", r.Ref, r.Revision, before.State, r.State))
	}
}

func (w *witness) show(ref retrysafe.Ref, out retrysafe.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shown = append(w.shown, shown{ref, out})
}

// watched is a store that reports its steps to the witness. By names its user.
type watched struct {
	retrysafe.Store
	w  *witness
	by string
}

func (s watched) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	got, err := s.Store.Create(ctx, w)
	switch {
	case err == nil:
		s.w.wrote(write{by: s.by, record: got})
	case errors.Is(err, retrysafe.ErrExists):
		s.w.saw(&got)
	default:
		s.check("create", err)
	}
	return got, err
}

func (s watched) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	got, err := s.Store.Swap(ctx, w)
	switch {
	case err == nil:
		s.w.wrote(write{by: s.by, record: got, from: w.Expect.Revision, claims: w.Overwrite})
	case errors.Is(err, retrysafe.ErrConflict):
		s.w.saw(&got)
	default:
		s.check("swap", err)
	}
	return got, err
}

func (s watched) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	got, err := s.Store.Load(ctx, ref)
	if err == nil {
		s.w.saw(&got)
	}
	s.check("load", err)
	return got, err
}

func (s watched) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	list, err := s.Store.List(ctx, q)
	for i := range list {
		s.w.saw(&list[i])
	}
	s.check("list", err)
	return list, err
}

// check records a violation if the store fails: nothing here makes it fail.
func (s watched) check(step string, err error) {
	if err != nil && !errors.Is(err, retrysafe.ErrNotFound) && !errors.Is(err, retrysafe.ErrBusy) {
		s.w.violation("%s: %s: the store failed: %w", s.by, step, err)
	}
}

// watchedTx is a transaction that reports its writes to the witness when it commits.
type watchedTx struct {
	retrysafe.Tx
	w      *witness
	writes []write
}

func (t *watchedTx) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	got, err := t.Tx.Swap(ctx, w)
	if err == nil {
		t.writes = append(t.writes, write{by: "transaction", record: got, from: w.Expect.Revision, claims: w.Overwrite})
	}
	return got, err
}

func (t *watchedTx) Commit(ctx context.Context) error {
	err := t.Tx.Commit(ctx)
	if err != nil {
		return err
	}
	for _, e := range t.writes {
		t.w.wrote(e)
	}
	return nil
}

package movetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/outbox"
)

// RetireIsUndone tests that a store stays open if its last records could not be copied,
// and can be moved later, and that another run ends nothing of this one. A store that is
// retired takes part in no further move.
func RetireIsUndone(t *testing.T, h Harness) {
	t.Helper()
	s := h.open(t)
	m, stranger := s.Mover(), retrysafe.Owner{8}
	runs(t, "before a move", m, retrysafe.Owner{}, retrysafe.Owner{})
	must(t, second(m.Follow(t.Context(), run)))
	if err := m.Unfollow(t.Context(), stranger); !errors.Is(err, storemove.ErrOvertaken) {
		t.Errorf("Unfollow of another run = %v", err)
	}
	if err := m.Fill(t.Context(), stranger, retrysafe.Owner{9}, "elsewhere"); !errors.Is(err, storemove.ErrLeaving) {
		t.Errorf("Fill of a store that is followed = %v", err)
	}
	if k, ok := m.(storemove.Keeper); ok {
		if replaced, err := k.ReplaceNote(t.Context(), "another note", "{}"); replaced || err != nil {
			t.Errorf("a note that has changed since it was read is replaced: %t, %v", replaced, err)
		}
	}
	full := errors.New("the destination is full")
	for _, interrupted := range []bool{false, true} {
		must(t, second(m.Follow(t.Context(), run)))
		put(t, s, fmt.Sprintf("a, interrupted %t", interrupted))
		ctx, interrupt := context.WithCancel(t.Context())
		err := m.Retire(ctx, run, "elsewhere", func(context.Context, []retrysafe.Record, []retrysafe.Ref) error {
			if interrupted {
				interrupt()
			}
			return full
		})
		interrupt()
		if !errors.Is(err, full) {
			t.Errorf("interrupted %t: Retire = %v", interrupted, err)
		}
		put(t, s, fmt.Sprintf("after a, interrupted %t", interrupted))
	}
	if h.Exec != nil {
		h.Exec(t, `CREATE TABLE retrysafe_keys_moved (n INTEGER)`) // the name that the table of keys is to get
		if _, err := retire(t.Context(), s); err == nil {
			t.Error("a store whose table cannot be renamed is retired")
		}
		h.Exec(t, `DROP TABLE retrysafe_keys_moved`)
	}
	runs(t, "after cuts that failed", m, retrysafe.Owner{}, retrysafe.Owner{})
	put(t, s, "b")
	if err := m.Unfollow(t.Context(), run); err != nil && !(h.CutEndsRun && errors.Is(err, storemove.ErrOvertaken)) {
		t.Error(err)
	}
	must(t, second(m.Follow(t.Context(), run)))
	if m, ok := m.(storemove.Lister); ok { // the move copies all records first
		must(t, second(m.List(t.Context(), retrysafe.Query{})))
	}
	w := fresh("c")
	fill(&w.Record)
	w.Result = nil
	must(t, second(s.Create(t.Context(), w)))
	last := load(t, s, w.Ref)
	written, gone, err := retireWhole(t.Context(), s)
	if rest := names(written, gone); err != nil || strings.Join(rest, ", ") != "c" {
		t.Errorf("left to copy: %q, %v", rest, err)
	} else {
		asStored(t, written, func(retrysafe.Ref) retrysafe.Record { return last })
	}
	runs(t, "after the cut", m, run, retrysafe.Owner{})
	for name, err := range map[string]error{
		"Follow": second(m.Follow(t.Context(), stranger)),
		"Fill":   m.Fill(t.Context(), stranger, retrysafe.Owner{9}, "elsewhere"),
		"Retire": second(retire(t.Context(), s)),
	} {
		if !errors.Is(err, storemove.ErrMoved) {
			t.Errorf("%s of a store that was moved = %v", name, err)
		}
	}
	if err := m.Unfollow(t.Context(), run); err == nil {
		t.Error("Unfollow has succeeded on a store that was moved")
	}
	if _, err := s.Create(t.Context(), fresh("too late")); !errors.Is(err, storemove.ErrMoved) || !strings.Contains(err.Error(), "to elsewhere on 20") {
		t.Errorf("Create = %v", err)
	}
}

// FillIsUndone tests that a move which is given up leaves the destination open and empty,
// that a store with records is not filled, and that an imported record goes by the
// clock of its new store.
func FillIsUndone(t *testing.T, h Harness) {
	t.Helper()
	s := h.open(t)
	m, source := s.Mover(), retrysafe.Owner{9}
	if h.Exec != nil {
		h.Exec(t, `CREATE TABLE retrysafe_keys_filling (n INTEGER)`)
		if err := m.Fill(t.Context(), run, source, "elsewhere"); err == nil {
			t.Error("a store whose table cannot be renamed is filled")
		}
		h.Exec(t, `DROP TABLE retrysafe_keys_filling`)
		runs(t, "after a Fill that failed", m, retrysafe.Owner{}, retrysafe.Owner{})
	}
	must(t, m.Fill(t.Context(), run, source, "elsewhere"))
	runs(t, "while it is filled", m, retrysafe.Owner{}, run)
	if _, err := m.Follow(t.Context(), retrysafe.Owner{8}); !errors.Is(err, storemove.ErrFilling) || !strings.Contains(err.Error(), "from elsewhere, begun on 20") {
		t.Errorf("Follow of a store that is filled = %v", err)
	}
	must(t, m.Import(t.Context(), run, []retrysafe.Record{fresh("given up").Record}, nil))
	must(t, m.Unfill(t.Context(), run))
	runs(t, "after a move that was given up", m, retrysafe.Owner{}, retrysafe.Owner{})
	if list, err := s.List(t.Context(), retrysafe.Query{}); err != nil || len(list) != 0 {
		t.Errorf("a move that was given up has left %q, %v", names(list, nil), err)
	}

	must(t, m.Fill(t.Context(), run, source, "elsewhere"))
	future := time.Now().Add(1000 * time.Hour)
	r := fresh("of a clock that is ahead").Record
	r.ReadAt, r.UpdatedAt, r.Revision, r.Deadline = future, future, future.UnixMicro(), future.Add(24*time.Hour)
	stateless := fresh("stateless").Record
	stateless.State = 0
	if err := m.Import(t.Context(), run, []retrysafe.Record{r, stateless}, nil); err == nil {
		t.Error("a record without a state was imported")
	}
	must(t, m.Import(t.Context(), run, []retrysafe.Record{r}, nil))
	must(t, m.Filled(t.Context(), run))
	runs(t, "after it was filled", m, retrysafe.Owner{}, retrysafe.Owner{})
	got, err := s.Load(t.Context(), r.Ref)
	must(t, err)
	if left := got.Deadline.Sub(got.ReadAt); left > 24*time.Hour || left < 23*time.Hour {
		t.Errorf("a lease that had a day left has %v", left)
	}
	if got.UpdatedAt.After(got.ReadAt) || got.Revision > got.ReadAt.UnixMicro() {
		t.Errorf("at %v the record was updated at %v, with revision %d", got.ReadAt, got.UpdatedAt, got.Revision)
	}
	must(t, second(s.Swap(t.Context(), done(got, "x"))))
	if err := m.Fill(t.Context(), run, source, "elsewhere"); !errors.Is(err, storemove.ErrNotEmpty) {
		t.Errorf("Fill of a store with a record = %v", err)
	}
	runs(t, "with records of its own", m, retrysafe.Owner{}, retrysafe.Owner{})
	must(t, second(s.Load(t.Context(), r.Ref)))
}

// MessagesStay tests that a store with a message or a dead letter is neither followed nor
// retired, because messages do not move.
func MessagesStay(t *testing.T, h Harness) {
	t.Helper()
	s := h.open(t)
	m, box := s.Mover(), h.Outbox(s)
	enqueue := func() {
		t.Helper()
		h.within(t, s, retrysafe.Tx.Commit, func(tx retrysafe.Tx) error {
			return tx.(outbox.Enqueuer).Enqueue(t.Context(), outbox.Message{Topic: "t", Payload: []byte("hello")})
		})
	}
	held, err := box.Lease(t.Context(), retrysafe.Owner{3}, time.Hour)
	must(t, err)
	bury := func() {
		t.Helper()
		due, err := box.Due(t.Context(), held.Shards, 10)
		must(t, err)
		for _, d := range due {
			must(t, second(box.Ack(t.Context(), []outbox.Ack{{ID: d.ID, Shard: d.Shard, Kind: outbox.AckDead, Tries: 1, Why: "closed"}})))
		}
	}
	drop := func() {
		t.Helper()
		dead, err := box.DeadLetters(t.Context(), 0, 10)
		must(t, err)
		if len(dead) != 1 {
			t.Fatalf("%d dead letters", len(dead))
		}
		must(t, box.Dispose(t.Context(), outbox.Disposal{ID: dead[0].ID, Revision: dead[0].Revision}))
	}
	refused := func(name string, step func() error) {
		t.Helper()
		enqueue()
		if err := step(); !errors.Is(err, storemove.ErrUndelivered) {
			t.Errorf("%s with a message = %v", name, err)
		}
		bury()
		if err := step(); !errors.Is(err, storemove.ErrUndelivered) {
			t.Errorf("%s with a dead letter = %v", name, err)
		}
		drop()
		must(t, step())
	}
	refused("Follow", func() error { return second(m.Follow(t.Context(), run)) })
	refused("Retire", func() error { return second(retire(t.Context(), s)) })
	for name, err := range map[string]error{
		"Lease":       second(box.Lease(t.Context(), retrysafe.Owner{3}, time.Hour)),
		"Due":         second(box.Due(t.Context(), held.Shards, 10)),
		"Ack":         second(box.Ack(t.Context(), []outbox.Ack{{ID: 1, Shard: held.Shards[0], Kind: outbox.AckDelivered}})),
		"DeadLetters": second(box.DeadLetters(t.Context(), 0, 10)),
	} {
		if !errors.Is(err, storemove.ErrMoved) {
			t.Errorf("%s in a store that was moved = %v", name, err)
		}
	}
	h.refusedWithin(t, s, "Enqueue in a store that was moved", func(tx retrysafe.Tx) error {
		return tx.(outbox.Enqueuer).Enqueue(t.Context(), outbox.Message{Topic: "t", Payload: []byte("late")})
	})
}

// runs checks which runs have retired the store and fill it.
func runs(t *testing.T, when string, m storemove.Store, retired, filling retrysafe.Owner) {
	t.Helper()
	if by, err := m.Retired(t.Context()); err != nil || by != retired {
		t.Errorf("%s: Retired = %v, %v; want %v", when, by, err, retired)
	}
	if by, err := m.Filling(t.Context()); err != nil || by != filling {
		t.Errorf("%s: Filling = %v, %v; want %v", when, by, err, filling)
	}
}

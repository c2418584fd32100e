package sqlitestore

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// twoStores are two processes on one file.
func twoStores(t *testing.T) (a, b *Store) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.db")
	open := func() *Store {
		s, err := Open(t.Context(), path, &Options{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	return open(), open()
}

func reserve(t *testing.T, s *Store, key string) retrysafe.Record {
	t.Helper()
	r, err := s.Create(t.Context(), record(key, 1))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func completed(r retrysafe.Record, answer string) retrysafe.Write {
	w := r.Update()
	w.State, w.Term, w.Result = retrysafe.StateCompleted, time.Hour, &retrysafe.Result{Status: 201, Body: []byte(answer)}
	return w
}

func (k *reservedRows) of(key string) (reservedRow, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.rows[id(idOf(retrysafe.Ref{Scope: "s", Key: key}))]
	return r, ok
}

// answerOf is what is stored under a key.
func answerOf(t *testing.T, s *Store, key string) string {
	t.Helper()
	r, err := s.Load(t.Context(), retrysafe.Ref{Scope: "s", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if r.Result == nil {
		return r.State.String()
	}
	return string(r.Result.Body)
}

// A row is remembered by its number from its reservation on, over renewals, until it is
// settled.
func TestReservedRowsAreRemembered(t *testing.T) {
	t.Parallel()
	s, _ := twoStores(t)
	const keys = chunk + 7 // several statements
	var creates, renewals, settlements []request
	for i := range keys {
		creates = append(creates, request{create: true, w: record(fmt.Sprint(i), 1)})
	}
	for i, a := range s.sendDeferred(t.Context(), batchOf(creates...)) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		w := a.Value.Update()
		w.Term = time.Hour
		renewals = append(renewals, request{w: w})
		var number int64
		if err := s.db.QueryRowContext(t.Context(), `SELECT row FROM retrysafe_keys WHERE id = ?`, idOf(a.Value.Ref)).Scan(&number); err != nil {
			t.Fatal(err)
		}
		if known, ok := s.reserved.of(fmt.Sprint(i)); !ok || known.number != number {
			t.Errorf("key %d is row %d, remembered as %d, %v", i, number, known.number, ok)
		}
	}
	b := newBatch(batchOf(renewals...))
	s.reserved.assume(b)
	if err := s.tryDeferred(t.Context(), b); err != nil || len(b.unread) != 0 {
		t.Fatalf("renewals: %v, and %d rows were read", err, len(b.unread))
	}
	s.ended(&s.deferredConn, b, nil)
	for _, a := range b.answered(nil) {
		settlements = append(settlements, request{w: completed(*a.Value, "done")})
	}
	for i, a := range s.sendDeferred(t.Context(), batchOf(settlements...)) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		if _, ok := s.reserved.of(fmt.Sprint(i)); ok || answerOf(t, s, fmt.Sprint(i)) != "done" {
			t.Errorf("key %d is remembered after its end, or not as it was settled: %q", i, answerOf(t, s, fmt.Sprint(i)))
		}
	}
}

// What another process has done to a row counts, not what is remembered of it, and the
// other requests of the batch are not affected.
func TestReservedRowThatAnotherProcessHasChanged(t *testing.T) {
	t.Parallel()
	ours, theirs := twoStores(t)
	taken, kept := reserve(t, ours, "taken"), reserve(t, ours, "kept")
	if _, err := theirs.Swap(t.Context(), completed(taken, "theirs")); err != nil {
		t.Fatal(err)
	}
	if _, ok := ours.reserved.of("taken"); !ok {
		t.Fatal("the test needs a row that is remembered")
	}
	answers := ours.sendDeferred(t.Context(), batchOf(request{w: completed(taken, "ours")}, request{w: completed(kept, "ours")}, request{create: true, w: record("new", 1)}))
	if got := answers[0]; !errors.Is(got.Err, retrysafe.ErrConflict) || got.Value == nil || string(got.Value.Result.Body) != "theirs" {
		t.Errorf("the row that was changed: %+v", got)
	}
	if answers[1].Err != nil || answers[2].Err != nil {
		t.Errorf("the others: %v, %v", answers[1].Err, answers[2].Err)
	}
	for key, want := range map[string]string{"taken": "theirs", "kept": "ours", "new": "in_progress"} {
		if got := answerOf(t, ours, key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if ours.deferredConn.conn == nil {
		t.Error("the connection was closed for a row that another process has changed")
	}
}

// The same in a batch that waits for the write lock.
func TestReservedRowThatAnotherProcessHasChangedUnderTheLock(t *testing.T) {
	t.Parallel()
	ours, theirs := twoStores(t)
	taken := reserve(t, ours, "taken")
	if _, err := theirs.Swap(t.Context(), completed(taken, "theirs")); err != nil {
		t.Fatal(err)
	}
	if got := ours.sendImmediate(t.Context(), batchOf(request{w: completed(taken, "ours")}))[0]; !errors.Is(got.Err, retrysafe.ErrConflict) {
		t.Errorf("%+v", got)
	}
	if got := answerOf(t, ours, "taken"); got != "theirs" {
		t.Errorf("stored is %q", got)
	}
}

// The number of a row that is gone is given to the next one.
func TestReservedRowWhoseNumberAnotherKeyHas(t *testing.T) {
	t.Parallel()
	ours, theirs := twoStores(t)
	gone := reserve(t, ours, "gone")
	if _, err := theirs.db.ExecContext(t.Context(), `DELETE FROM retrysafe_keys`); err != nil {
		t.Fatal(err)
	}
	other := reserve(t, theirs, "other")
	if _, err := ours.Swap(t.Context(), completed(gone, "ours")); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("the settlement of a row that is gone: %v", err)
	}
	if _, err := theirs.Swap(t.Context(), completed(other, "theirs")); err != nil || answerOf(t, ours, "other") != "theirs" {
		t.Errorf("the row that has its number: %q, %v", answerOf(t, ours, "other"), err)
	}
}

// A row that is no longer found by its key is not settled, although its record is as it
// was.
func TestReservedRowUnderAnotherID(t *testing.T) {
	t.Parallel()
	s, _ := twoStores(t)
	moved := reserve(t, s, "moved")
	if _, err := s.db.ExecContext(t.Context(), `UPDATE retrysafe_keys SET id = randomblob(16)`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Swap(t.Context(), completed(moved, "ours")); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("its settlement: %v", err)
	}
}

// Two requests for one key in one batch are decided in their order, on what is stored.
func TestReservedRowOfTwoRequests(t *testing.T) {
	t.Parallel()
	s, _ := twoStores(t)
	r := reserve(t, s, "k")
	answers := s.sendDeferred(t.Context(), batchOf(request{w: completed(r, "first")}, request{w: completed(r, "second")}))
	if answers[0].Err != nil || !errors.Is(answers[1].Err, retrysafe.ErrConflict) || answerOf(t, s, "k") != "first" {
		t.Errorf("%v, %v, stored is %q", answers[0].Err, answers[1].Err, answerOf(t, s, "k"))
	}
}

// What is remembered is bounded, and a batch that failed leaves nothing behind.
func TestReservedRowsAreBounded(t *testing.T) {
	t.Parallel()
	var k reservedRows
	at := &row{changed: true, rec: retrysafe.Record{State: retrysafe.StateInProgress}, number: 7}
	if at.keep(make([]byte, maxReservedRow+1)); at.kept.rec != nil {
		t.Error("a large record is kept")
	}
	at.keep(make([]byte, maxReservedRow))
	for i := range maxReserved + 10 {
		at.id = id{byte(i), byte(i >> 8)}
		k.note(&batch{rows: []*row{at}}, true)
		if len(k.rows) > maxReserved {
			t.Fatalf("%d rows are remembered", len(k.rows))
		}
	}
	if _, ok := k.rows[at.id]; !ok {
		t.Error("the last row is not remembered")
	}
	if k.note(&batch{rows: []*row{at}}, false); len(k.rows) != 9 {
		t.Errorf("%d rows are remembered after a batch that failed, want 9", len(k.rows))
	}
}

package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func TestClockThatStepsBack(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := memstore.New(&memstore.Options{Now: c.Now})
	before := mustCreate(t, s, reservation("k"))
	c.Advance(-time.Hour)
	w := before.Update()
	w.Term = time.Minute
	after := mustSwap(t, s, w)
	if after.ReadAt.Before(before.ReadAt) || after.UpdatedAt.Before(before.UpdatedAt) {
		t.Errorf("time went back from %v to %v", before.ReadAt, after.ReadAt)
	}
	if after.Revision <= before.Revision {
		t.Errorf("revision went from %d to %d", before.Revision, after.Revision)
	}
	loaded, err := s.Load(t.Context(), before.Ref)
	wantErr(t, "load", err, nil)
	again := reservation("k")
	again.Owner = retrysafe.Owner{9}
	exists, err := s.Create(t.Context(), again)
	wantErr(t, "second create", err, retrysafe.ErrExists)
	tx, err := s.Begin(t.Context())
	wantErr(t, "begin", err, nil)
	reserved, err := tx.Reserve(t.Context(), before.Ref)
	wantErr(t, "reserve", err, nil)
	there, err := tx.Create(t.Context(), again)
	wantErr(t, "create in a transaction", err, retrysafe.ErrExists)
	wantErr(t, "rollback", tx.Rollback(t.Context()), nil)
	for step, r := range map[string]retrysafe.Record{"Load": loaded, "Create": exists, "Reserve": reserved, "Create in a transaction": there} {
		if r.ReadAt.Before(before.ReadAt) {
			t.Errorf("%s: time went back from %v to %v", step, before.ReadAt, r.ReadAt)
		}
	}
	if other := mustCreate(t, s, reservation("other")); other.Revision <= after.Revision {
		t.Errorf("a later record has revision %d, an earlier one %d", other.Revision, after.Revision)
	}
}

func TestRevisionStartsAtTheClock(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := memstore.New(&memstore.Options{Now: c.Now})
	if got, want := mustCreate(t, s, reservation("k")).Revision, c.Now().UnixMicro(); got != want {
		t.Errorf("first revision: got %d, want the clock in µs, %d", got, want)
	}
}

// A zero owner identifies no caller, so two calls with it are not the same caller's.
func TestNobodyIsNotRecognised(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	r := reservation("k")
	r.Owner = retrysafe.Owner{}
	mustCreate(t, s, r)
	_, err := s.Create(t.Context(), r)
	wantErr(t, "second Create by a zero owner", err, retrysafe.ErrExists)
}

func TestCancelledContextIsReturned(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	r := mustCreate(t, s, reservation("k")).Update()
	box, tx := s.Outbox(), begin(t, s)
	wantErr(t, "Enqueue", tx.Enqueue(t.Context(), outbox.Message{Topic: "t"}), nil)
	wantErr(t, "Commit", tx.Commit(t.Context()), nil)
	held, err := box.Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	wantErr(t, "Lease", err, nil)
	due, err := box.Due(t.Context(), held.Shards, 10)
	if err != nil || len(due) != 1 {
		t.Fatalf("Due = %v, %v", due, err)
	}
	ack := outbox.Ack{ID: due[0].ID, Shard: due[0].Shard, Kind: outbox.AckDelivered, Tries: 1}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for step, call := range map[string]func() error{
		"Create": func() error { _, err := s.Create(ctx, reservation("other")); return err },
		"Swap":   func() error { _, err := s.Swap(ctx, r); return err },
		"Load":   func() error { _, err := s.Load(ctx, r.Ref); return err },
		"List":   func() error { _, err := s.List(ctx, retrysafe.Query{}); return err },
		"Purge":  func() error { _, err := s.Purge(ctx, 1); return err },
		"Count":  func() error { _, err := s.Count(ctx, r.Scope); return err },
		"Begin":  func() error { _, err := s.Begin(ctx); return err },

		"Changes": func() error { _, _, err := s.Changes(ctx, ""); return err },

		"Lease":          func() error { _, err := box.Lease(ctx, retrysafe.Owner{1}, time.Hour); return err },
		"Due":            func() error { _, err := box.Due(ctx, held.Shards, 1); return err },
		"DueExcept":      func() error { _, _, err := box.DueExcept(ctx, held.Shards, nil, 1); return err },
		"Ack":            func() error { _, err := box.Ack(ctx, []outbox.Ack{ack}); return err },
		"DeadLetters":    func() error { _, err := box.DeadLetters(ctx, 0, 1); return err },
		"Dispose":        func() error { return box.Dispose(ctx, outbox.Disposal{ID: 1}) },
		"Failing":        func() error { _, err := box.Failing(ctx, 0, 1); return err },
		"Skip":           func() error { _, err := box.Skip(ctx, outbox.SkipRequest{ID: 1, Tries: 1}); return err },
		"Receipts":       func() error { _, err := box.Receipts(ctx, outbox.ReceiptQuery{Limit: 1}); return err },
		"ForgetReceipts": func() error { return box.ForgetReceipts(ctx, r.Ref) },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want %v", step, err, context.Canceled)
		}
	}
	if due, err := box.Due(t.Context(), held.Shards, 10); err != nil || len(due) != 1 {
		t.Errorf("afterwards %d messages are due, %v, want 1", len(due), err)
	}
}

// A reader of changes waits for the next one, for half a second, or until its context
// ends.
func TestChangesAreWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		r := mustCreate(t, s, reservation("k"))
		swap := func(announce bool) {
			w := r.Update()
			w.Term, w.Announce = time.Hour, announce
			r = mustSwap(t, s, w)
		}
		swap(true)
		_, cursor, err := s.Changes(t.Context(), "")
		wantErr(t, "the present", err, nil)

		type told struct {
			changed []retrysafe.Ref
			next    string
			err     error
			after   time.Duration
		}
		read := func(ctx context.Context) <-chan told {
			out, start := make(chan told, 1), time.Now()
			go func() {
				changed, next, err := s.Changes(ctx, cursor)
				out <- told{changed, next, err, time.Since(start)}
			}()
			synctest.Wait()
			return out
		}
		if got := <-read(t.Context()); len(got.changed) != 0 || got.next != cursor || got.err != nil || got.after != 500*time.Millisecond {
			t.Errorf("where nothing changes: %+v", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if got := <-read(ctx); got.next != "" || !errors.Is(got.err, context.DeadlineExceeded) || got.after != 100*time.Millisecond {
			t.Errorf("with a context that ends: %+v", got)
		}
		one, two := read(t.Context()), read(t.Context())
		time.Sleep(100 * time.Millisecond)
		swap(false)
		time.Sleep(100 * time.Millisecond)
		swap(true)
		for _, got := range []told{<-one, <-two} {
			if len(got.changed) != 1 || got.changed[0] != r.Ref || got.next != "2" || got.err != nil || got.after != 200*time.Millisecond {
				t.Errorf("of a change: %+v", got)
			}
		}
	})
}

// A limit beyond one hold of a shard's lock is a limit too.
func TestPurgeOfManyRespectsItsLimit(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	for i := range 250 {
		mustCreate(t, s, moved(reservation(fmt.Sprint(i)), retrysafe.StateCompleted, -time.Second))
	}
	for _, want := range []int{200, 50, 0} {
		if got, err := s.Purge(t.Context(), 200); got != want || err != nil {
			t.Errorf("Purge: got %d, %v, want %d", got, err, want)
		}
	}
}

// Purge must agree with a plain look at every record, whatever order the
// deadlines come in and however records enter and leave the forgettable states.
func TestPurgeAgreesWithALookAtEveryRecord(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := memstore.New(&memstore.Options{Now: c.Now})
	random := rand.New(rand.NewPCG(1, 2))
	all := make(map[retrysafe.Ref]retrysafe.Record)
	for range 20_000 {
		r := reservation(fmt.Sprint(random.IntN(2000)))
		term := time.Duration(random.IntN(1000)) * time.Second
		state := retrysafe.StateAccepted + retrysafe.State(random.IntN(6))
		if old, ok := all[r.Ref]; ok {
			all[r.Ref] = mustSwap(t, s, moved(old.Update(), state, term))
		} else {
			all[r.Ref] = mustCreate(t, s, moved(r, state, term))
		}
		if random.IntN(50) > 0 {
			continue
		}
		c.Advance(time.Duration(random.IntN(100)) * time.Second)
		want := 0
		for ref, r := range all {
			if r.State.Forgettable() && !c.Now().Before(r.Deadline) {
				want++
				delete(all, ref)
			}
		}
		if got, err := s.Purge(t.Context(), 10_000); got != want || err != nil {
			t.Fatalf("Purge: got %d, %v, want %d", got, err, want)
		}
		if got, err := s.Count(t.Context(), "acct_1"); got != len(all) || err != nil {
			t.Fatalf("Count: got %d, %v, want %d", got, err, len(all))
		}
	}
	for ref, want := range all {
		got, err := s.Load(t.Context(), ref)
		if err != nil || got.Revision != want.Revision {
			t.Fatalf("Load(%q): got revision %d, %v, want %d", ref, got.Revision, err, want.Revision)
		}
	}
}

// The hot path allocates nothing but a new record.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	ctx, s := t.Context(), memstore.New(nil)
	done := complete(t, s, "done")
	retry := benchRecord("done")
	retry.Owner = retrysafe.Owner{2}
	beat := mustCreate(t, s, reservation("running"))
	keys, n := benchKeys(2000), 0
	fresh := benchRecord("")
	for name, c := range map[string]struct {
		most float64
		step func() error
	}{
		"replay":    {0, func() error { s.Create(ctx, retry); return nil }},
		"load":      {0, func() error { _, err := s.Load(ctx, done.Ref); return err }},
		"conflict":  {0, func() error { s.Swap(ctx, benchRecord("done")); return nil }},
		"heartbeat": {0, func() (err error) { w := beat.Update(); w.Term = time.Hour; beat, err = s.Swap(ctx, w); return err }},
		"fresh":     {2, func() error { fresh.Key = keys[n]; n++; _, err := s.Create(ctx, fresh); return err }},
	} {
		var err error
		got := testing.AllocsPerRun(1000, func() {
			if e := c.step(); e != nil {
				err = e
			}
		})
		if got > c.most || err != nil {
			t.Errorf("%s: got %v allocations and %v, want %v at most", name, got, err, c.most)
		}
	}
}

// A reader that is so far behind that changes are forgotten is told so, and does not miss
// them.
func TestForgottenChangesAreLost(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	r := mustCreate(t, s, reservation("k"))
	for range 1001 { // half of 1,000 are forgotten
		w := r.Update()
		w.Term, w.Announce = time.Minute, true
		r = mustSwap(t, s, w)
	}
	for cursor, want := range map[string]int{"500": 501, "1000": 1} {
		if changed, next, err := s.Changes(t.Context(), cursor); len(changed) != want || next != "1001" || err != nil {
			t.Errorf("from %s on there are %d changes up to %s, %v, want %d up to 1001", cursor, len(changed), next, err, want)
		}
	}
	for _, cursor := range []string{"0", "499", "1002", "of another store"} {
		_, _, err := s.Changes(t.Context(), cursor)
		wantErr(t, "changes from "+cursor, err, retrysafe.ErrChangesLost)
	}
}

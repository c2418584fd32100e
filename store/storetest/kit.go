package storetest

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

const (
	// tick is the coarsest clock a store may have.
	tick = time.Millisecond
	// soon is a term that a rule waits for; later is one that does not end during a
	// rule.
	soon  = 30 * time.Millisecond
	later = time.Hour
	// poll is the pause between two reads of the store's clock.
	poll = 2 * time.Millisecond
	// crowd is the number of concurrent steps in a race.
	crowd = 64
)

// A kit is what a rule works with: the store, and steps that must succeed.
type kit struct {
	Harness
	trial
	open []retrysafe.Tx // to be rolled back when the rule ends
}

// node returns the i-th handle on the store, modulo their number.
func (k *kit) node(i int) retrysafe.Store {
	if i %= len(k.Peers) + 1; i > 0 {
		return k.Peers[i-1]
	}
	return k.Store
}

// record returns the write that reserves key in scope acct_1 for an owner of its own.
func (k *kit) record(key string) retrysafe.Write {
	return retrysafe.Write{Record: retrysafe.Record{
		Ref:         retrysafe.Ref{Scope: "acct_1", Key: key},
		KeyText:     []byte("sealed " + key),
		Operation:   "POST /payments",
		Fingerprint: retrysafe.Fingerprint{Alg: 1, Sum: sha256.Sum256([]byte(key))},
		State:       retrysafe.StateInProgress,
		Lapse:       retrysafe.LapseQuarantine,
		Effects:     retrysafe.EffectsUnprotected,
		Version:     retrysafe.RecordVersion,
		Owner:       newOwner(),
		Attempt:     1,
		Request:     []byte(`{"amount":1200}`),
		Retain:      24 * time.Hour,
	}, Term: later}
}

// in returns w with another state, and with an answer exactly if that is Completed.
func in(state retrysafe.State, w retrysafe.Write, term time.Duration) retrysafe.Write {
	w.State, w.Result, w.Term = state, nil, term
	if state == retrysafe.StateCompleted {
		w.Result = answer()
	}
	return w
}

// to returns the write that moves the stored record r to a state.
func to(state retrysafe.State, r retrysafe.Record, term time.Duration) retrysafe.Write {
	return in(state, r.Update(), term)
}

// beat returns a heartbeat: the write that renews the lease of r and changes nothing
// else.
func beat(r retrysafe.Record) retrysafe.Write {
	w := r.Update()
	w.Term = later
	return w
}

// claim returns w as the write of a new owner that starts an attempt.
func claim(w retrysafe.Write, attempt int) retrysafe.Write {
	w.Overwrite, w.Owner, w.Attempt = true, newOwner(), attempt
	return w
}

// left returns the record that is stored after w, if all of it is stored. The fields
// that the store sets come from got, which the store returned.
func left(w retrysafe.Write, got retrysafe.Record) retrysafe.Record {
	want := w.Record
	want.Revision, want.Deadline, want.CreatedAt, want.UpdatedAt = got.Revision, got.Deadline, got.CreatedAt, got.UpdatedAt
	return want
}

func answer() *retrysafe.Result {
	return &retrysafe.Result{
		Status: 201,
		Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/payments/1"}},
		Body:   []byte(`{"id":1}`),
	}
}

func newOwner() (o retrysafe.Owner) {
	_, _ = rand.Read(o[:]) // it never fails
	return o
}

// create stores a new record, which must succeed.
func (k *kit) create(w retrysafe.Write) retrysafe.Record {
	k.t.Helper()
	got, err := k.Store.Create(k.ctx, w)
	if err != nil {
		k.failf("Create(%q): got %v, want a new record", w.Ref, err)
	}
	return got
}

// swap replaces a record, which must succeed.
func (k *kit) swap(w retrysafe.Write) retrysafe.Record {
	k.t.Helper()
	got, err := k.Store.Swap(k.ctx, w)
	if err != nil {
		k.failf("Swap(%q, revision %d): got %v, want it replaced", w.Ref, w.Expect.Revision, err)
	}
	return got
}

// load reads a record that must exist.
func (k *kit) load(ref retrysafe.Ref) retrysafe.Record {
	k.t.Helper()
	got, err := k.Store.Load(k.ctx, ref)
	if err != nil {
		k.failf("Load(%q): got %v, want the record", ref, err)
	}
	return got
}

// absent checks that there is no record.
func (k *kit) absent(ref retrysafe.Ref) {
	k.t.Helper()
	if got, err := k.Store.Load(k.ctx, ref); !errors.Is(err, retrysafe.ErrNotFound) {
		k.failf("Load(%q): got a record in state %v and %v, want ErrNotFound", ref, got.State, err)
	}
}

// want checks that a step ended with the given sentinel.
func (k *kit) want(step string, got, want error) {
	k.t.Helper()
	if !errors.Is(got, want) {
		k.failf("%s: got error %v, want %v", step, got, want)
	}
}

// same checks that two records have equal stored fields.
func (k *kit) same(what string, got, want retrysafe.Record) {
	k.t.Helper()
	if d := diff(got, want); d != "" {
		k.failf("%s: %s", what, d)
	}
}

// unchanged checks that the stored record is still the same.
func (k *kit) unchanged(what string, was retrysafe.Record) {
	k.t.Helper()
	k.same(what+" changed the record", k.load(was.Ref), was)
}

// until returns when the store's clock has reached at, according to the ReadAt of ref.
func (k *kit) until(ref retrysafe.Ref, at time.Time) {
	k.t.Helper()
	for {
		now := k.load(ref).ReadAt
		if !now.Before(at) {
			return
		}
		if k.Advance != nil {
			k.Advance(at.Sub(now))
		}
		select {
		case <-time.After(poll):
		case <-k.ctx.Done():
			k.failf("the store's clock stands still: ReadAt is %v, and %v does not come", now, at)
		}
	}
}

// untilDue returns when the record is due by the store's clock.
func (k *kit) untilDue(r retrysafe.Record) {
	k.t.Helper()
	k.until(r.Ref, r.Deadline)
}

// reply is what one step of a race returned.
type reply struct {
	rec retrysafe.Record
	err error
}

// race runs n steps concurrently and returns their replies in order.
func race(n int, step func(i int) (retrysafe.Record, error)) []reply {
	replies := make([]reply, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			replies[i].rec, replies[i].err = step(i)
		})
	}
	close(start)
	wg.Wait()
	return replies
}

// retryBusy repeats a step while it returns ErrBusy. The commit of another transaction
// may be under way, and a store need not wait for it.
func (k *kit) retryBusy(step func() (retrysafe.Record, error)) (retrysafe.Record, error) {
	for {
		got, err := step()
		if !errors.Is(err, retrysafe.ErrBusy) {
			return got, err
		}
		select {
		case <-time.After(poll):
		case <-k.ctx.Done():
			return got, err
		}
	}
}

// winner returns the index of the only reply without an error; all others must
// carry the sentinel.
func (k *kit) winner(replies []reply, loses error) int {
	k.t.Helper()
	winner := -1
	for i, r := range replies {
		switch {
		case r.err == nil && winner >= 0:
			k.failf("two of %d at the same time won", len(replies))
		case r.err == nil:
			winner = i
		case !errors.Is(r.err, loses):
			k.failf("a loser got %v, want %v", r.err, loses)
		}
	}
	if winner < 0 {
		k.failf("none of %d at the same time won", len(replies))
	}
	return winner
}

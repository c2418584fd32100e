package retrysafe_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
)

// TestSwept is the table of what becomes of a record that is due, by nothing but
// what it says itself.
func TestSwept(t *testing.T) {
	t.Parallel()
	const stays = retrysafe.State(0)
	in := func(s retrysafe.State, e retrysafe.Effects, l retrysafe.Lapse) retrysafe.Record {
		r := unknown(e)
		r.State, r.Lapse, r.Reason = s, l, ""
		return r
	}
	accepted := func(attempt int, e retrysafe.Effects) retrysafe.Record {
		r := in(retrysafe.StateAccepted, e, 0)
		r.Attempt, r.Request = attempt, []byte("later")
		return r
	}
	taken := in(retrysafe.StateInProgress, retrysafe.EffectsKeyed, retrysafe.LapseRerun)
	taken.Request = []byte("later")
	early := in(retrysafe.StateInProgress, 0, 0)
	early.Deadline = early.ReadAt.Add(time.Microsecond)
	newer := in(retrysafe.StateInProgress, 0, 0)
	newer.Version++
	done := in(retrysafe.StateCompleted, 0, 0)
	paid := answer("paid")
	done.Result = &paid
	for name, c := range map[string]struct {
		r      retrysafe.Record
		want   retrysafe.State
		status int
	}{
		"unprotected":                         {r: in(retrysafe.StateInProgress, 0, 0), want: retrysafe.StateUnknown},
		"unprotected, whatever it says":       {r: in(retrysafe.StateInProgress, 0, retrysafe.LapseRerun), want: retrysafe.StateUnknown},
		"unprotected, to be failed":           {r: in(retrysafe.StateInProgress, 0, retrysafe.LapseFail), want: retrysafe.StateUnknown, status: 500},
		"keyed, by default":                   {r: in(retrysafe.StateInProgress, retrysafe.EffectsKeyed, 0), want: retrysafe.StateUnknown},
		"keyed, to be run again":              {r: in(retrysafe.StateInProgress, retrysafe.EffectsKeyed, retrysafe.LapseRerun), want: retrysafe.StateRetryable},
		"keyed, to be resumed":                {r: in(retrysafe.StateInProgress, retrysafe.EffectsKeyed, retrysafe.LapseResume), want: retrysafe.StateRetryable},
		"in a transaction, to be run again":   {r: in(retrysafe.StateInProgress, retrysafe.EffectsInTx, retrysafe.LapseRerun), want: retrysafe.StateRetryable},
		"a worker's, to be run again":         {r: taken, want: retrysafe.StateAccepted},
		"nobody took it up":                   {r: accepted(0, retrysafe.EffectsKeyed), want: retrysafe.StateCompleted, status: 408},
		"nobody took it up again":             {r: accepted(1, retrysafe.EffectsKeyed), want: retrysafe.StateUnknown},
		"its lease has a microsecond to go":   {r: early, want: stays},
		"it is of a newer version":            {r: newer, want: stays},
		"it is completed":                     {r: done, want: stays},
		"it may run again already":            {r: in(retrysafe.StateRetryable, 0, 0), want: stays},
		"it is unknown: that is not ours":     {r: in(retrysafe.StateUnknown, 0, 0), want: stays},
		"it is forgotten: that is the reaper": {r: in(retrysafe.StateExpired, 0, 0), want: stays},
	} {
		got, ok := retrysafe.DecideLapse(c.r)
		if ok != (c.want != stays) {
			t.Errorf("%s: swept %v", name, ok)
		}
		if !ok {
			continue
		}
		if got.State != c.want || (got.Result != nil) != (c.status != 0) || got.Result != nil && got.Result.Status != c.status {
			t.Errorf("%s: it becomes %v, %+v", name, got.State, got.Result)
		}
		if got.Expect != c.r.Fence() || got.Owner != c.r.Owner || got.Overwrite || got.Term <= 0 || got.Reason == "" || len(got.Inquiry.Notes) != 1 {
			t.Errorf("%s: %+v", name, got)
		} else if n := got.Inquiry.Notes[0]; n.By != "sweeper" || n.Text == "" || (n.Text == "no worker took it up") != (c.r.State == retrysafe.StateAccepted) {
			t.Errorf("%s: noted %+v", name, n)
		}
	}
}

// sweep does what a sweeper does, once.
func (b *bundle) sweep(t *testing.T) int {
	t.Helper()
	n := 0
	found, err := b.mem.List(t.Context(), retrysafe.Query{Due: true})
	must(t, err)
	for _, r := range found {
		if next, ok := retrysafe.DecideLapse(r); ok {
			_, err := b.mem.Swap(t.Context(), next)
			must(t, err)
			n++
		}
	}
	return n
}

// A swept attempt that may run again goes on from its checkpoint, by the next call.
func TestSweptAttemptIsResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume})
		old := b.begins(t)
		must(t, old.Save(t.Context(), retrysafe.Checkpoint{Phase: "charged", Data: []byte("ch_1")}))
		b.crash(t)
		if n := b.sweep(t); n != 1 || b.state(t).State != retrysafe.StateRetryable {
			t.Fatalf("swept %d: %v", n, b.state(t).State)
		}
		x := b.begins(t)
		if x.Attempt() != 2 || x.Checkpoint().Phase != "charged" || len(x.Record().Inquiry.Notes) != 1 {
			t.Errorf("attempt %d from %+v", x.Attempt(), x.Checkpoint())
		}
		if err := old.Complete(t.Context(), answer("late")); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("the late owner's answer: %v", err)
		}
		must(t, x.Complete(t.Context(), answer("paid")))
		b.replays(t, "paid")
	})
}

// A late owner may settle its own Unknown, also after a resolver has looked into it,
// and the resolver's notes stay.
func TestLateOwnerSettlesItsOwnUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, retrysafe.Policy{})
		x := b.begins(t)
		b.crash(t)
		b.fault.Plan(func(s faultstore.Step) faultstore.Fault { // it is not heard of until it completes
			if s.Op == faultstore.Swap && s.Write.State == retrysafe.StateInProgress {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		if n := b.sweep(t); n != 1 {
			t.Fatalf("swept %d", n)
		}
		asked, err := retrysafe.DecideEvidence(b.state(t), retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, By: "resolver"}, retrysafe.Recheck{After: time.Minute, Limit: 3})
		must(t, err)
		_, err = b.mem.Swap(t.Context(), asked)
		must(t, err)
		must(t, x.Complete(t.Context(), answer("paid")))
		b.replays(t, "paid")
		if n := b.state(t).Inquiry.Notes; len(n) != 2 || n[1].By != "resolver" {
			t.Errorf("noted %+v", n)
		}
	})
}

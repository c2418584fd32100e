package retrysafe

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Once a defect: reservations that never arrived fill the memory of orphans for ever.
func TestOrphansNeverFillUpForGood(t *testing.T) {
	t.Parallel()
	var o orphans
	for i := range maxOrphans {
		o.add(Owner{byte(i), byte(i >> 8), 1}) // requests that were lost: no retry ever finds their records
	}
	late := Owner{2, 2, 2}
	o.add(late)
	if !o.take(late) {
		t.Error("after 10,000 lost requests no lost reply is ever remembered again")
	}
	if len(o.known) != maxOrphans-1 {
		t.Errorf("%d orphans are left: one makes room for one", len(o.known))
	}
}

// scripted is a store whose steps end as a script says, and that stores what comes after
// its end.
type scripted struct {
	Store
	creates, swaps []func(Write) (Record, error)
	over           bool // each swap is refused
}

func stored(w Write) (Record, error) {
	return Record{Ref: w.Ref, State: w.State, Owner: w.Owner, Attempt: 1, Version: RecordVersion, Revision: 2, Deadline: time.Now().Add(w.Term), ReadAt: time.Now()}, nil
}

func (s *scripted) Create(_ context.Context, w Write) (Record, error) { return next(&s.creates, w) }

func (s *scripted) Swap(_ context.Context, w Write) (Record, error) {
	if s.over {
		return Record{}, ErrLost
	}
	return next(&s.swaps, w)
}

func next(script *[]func(Write) (Record, error), w Write) (Record, error) {
	if len(*script) == 0 {
		return stored(w)
	}
	step := (*script)[0]
	*script = (*script)[1:]
	return step(w)
}

// A reservation whose first tries were unclear, and that is confirmed in the end, is no
// orphan: another call of this process would take over an attempt that runs.
func TestConfirmedReservationIsNoOrphan(t *testing.T) {
	t.Parallel()
	lost := func(Write) (Record, error) { return Record{}, errors.New("the reply is lost") }
	busy := func(Write) (Record, error) { return Record{}, ErrBusy }
	released := func(w Write) (Record, error) {
		r, _ := stored(w)
		r.State, r.Owner, r.Revision = StateRetryable, Owner{}, 1
		return r, ErrExists
	}
	for name, s := range map[string]*scripted{
		"created": {creates: []func(Write) (Record, error){lost, busy}},
		"claimed": {creates: []func(Write) (Record, error){released}, swaps: []func(Write) (Record, error){lost, busy}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := New(s, &Options{Policy: Policy{InFlight: InFlightWait, Wait: time.Minute}})
			if err != nil {
				t.Fatal(err)
			}
			x, _, err := e.Begin(t.Context(), Call{Ref: Ref{Scope: "acme", Key: "key"}})
			if err != nil {
				t.Fatal(err)
			}
			if len(s.creates)+len(s.swaps) > 0 {
				t.Error("the script was not played to its end")
			}
			if e.orphans.take(x.owner) {
				t.Error("the owner of an attempt that runs is an orphan")
			}
			s.over = true // the execution ends with the test, and with it the renewal of its lease
			if err := x.Complete(t.Context(), Result{Status: 201}); err == nil {
				t.Error("a refused swap has stored an answer")
			}
		})
	}
}

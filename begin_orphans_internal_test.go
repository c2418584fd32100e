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
}

// scripted is a store whose first creates end with errors.
type scripted struct {
	Store
	errs []error
}

func (s *scripted) Create(ctx context.Context, w Write) (Record, error) {
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return Record{}, err
	}
	return Record{Ref: w.Ref, State: w.State, Owner: w.Owner, Attempt: 1, Version: RecordVersion, Revision: 1, Deadline: time.Now().Add(w.Term), ReadAt: time.Now()}, nil
}

// Swap says that the record is another attempt's, after which the execution is over and
// its lease is not renewed any more.
func (s *scripted) Swap(context.Context, Write) (Record, error) { return Record{}, ErrLost }

// A reservation whose first tries were unclear, and that is confirmed in the end, is no
// orphan: another call of this process would take over an attempt that runs.
func TestConfirmedReservationIsNoOrphan(t *testing.T) {
	t.Parallel()
	s := &scripted{errs: []error{errors.New("the reply is lost"), ErrBusy}}
	e, err := New(s, &Options{Policy: Policy{InFlight: InFlightWait, Wait: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	x, _, err := e.Begin(t.Context(), Call{Ref: Ref{Scope: "acme", Key: "key"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.Complete(t.Context(), Result{Status: 201}); err == nil {
			t.Error("the script has no answer")
		}
	}()
	if e.orphans.take(x.owner) {
		t.Error("the owner of an attempt that runs is an orphan")
	}
}

package operator_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A second click gets the outcome of the first, done or refused, and does nothing.
func TestW58_DoubleClickGetsTheFirstOutcome(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil)
		r := put(t, s, in(retrysafe.StateUnknown, "k"))
		a := seen(r)
		a.ID = "one-click"
		first, err := d.Release(t.Context(), a)
		must(t, err)
		again, err := d.Release(t.Context(), a)
		must(t, err)
		if !again.Replayed || again.To != first.To || !again.At.Equal(first.At) {
			t.Errorf("the second click got %+v, the first %+v", again, first)
		}
		if now := load(t, s, r.Ref); now.Revision != first.To.Revision || len(now.Inquiry.Notes) != 1 {
			t.Errorf("the second click has changed the record: %+v", now)
		}

		a.ID = "another-click" // on the same page, which is old by now
		first, err = d.Release(t.Context(), a)
		refused(t, d, first, err, operator.ErrStale)
		again, err = d.Release(t.Context(), a)
		refused(t, d, again, err, operator.ErrStale)
		if !again.Replayed || again.Text != first.Text {
			t.Errorf("the second click got %+v, the first %+v", again, first)
		}

		a.Why = "something else"
		if _, err := d.Release(t.Context(), a); !errors.Is(err, retrysafe.ErrMismatch) {
			t.Errorf("another action under the same ID: %v", err)
		}
		if _, err := d.Redrive(t.Context(), a); !errors.Is(err, retrysafe.ErrMismatch) {
			t.Errorf("another verb under the same ID: %v", err)
		}

		other := seen(put(t, s, in(retrysafe.StateUnknown, "other")))
		other.ID = "third-click"
		_, err = d.Resolve(t.Context(), other, paid)
		must(t, err)
		if _, err := d.Resolve(t.Context(), other, retrysafe.Result{Status: 402}); !errors.Is(err, retrysafe.ErrMismatch) {
			t.Errorf("another answer under the same ID: %v", err)
		}
		other.ProviderRef = "ch_2"
		if _, err := d.Resolve(t.Context(), other, paid); !errors.Is(err, retrysafe.ErrMismatch) {
			t.Errorf("another effect under the same ID: %v", err)
		}
		if n := len(audited(t, d, operator.AuditFilter{})); n != 3 {
			t.Errorf("%d entries in the audit, want one for each click", n)
		}
	})
}

// Clicks at the same moment, from several nodes.
func TestW58_ManyClicksActOnce(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		r := put(t, s, in(retrysafe.StateUnknown, "k"))
		a := seen(r)
		a.ID = "one-click"
		var wg sync.WaitGroup
		var mu sync.Mutex
		fresh := 0
		for range 16 {
			d := newDesk(t, s, nil)
			wg.Go(func() {
				e, err := d.Resolve(t.Context(), a, paid)
				mu.Lock()
				defer mu.Unlock()
				if err != nil || e.Outcome != operator.StatusDone {
					t.Errorf("%+v, %v", e, err)
				}
				if !e.Replayed {
					fresh++
				}
			})
		}
		wg.Wait()
		if now := load(t, s, r.Ref); fresh != 1 || len(now.Inquiry.Notes) != 1 {
			t.Errorf("%d clicks acted, and left %d notes", fresh, len(now.Inquiry.Notes))
		}
	})
}

// Of several operators with the same page one wins. The others are told the record's
// state and the name of the winner.
func TestW58_OneOfManyOperatorsWins(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil)
		r := put(t, s, in(retrysafe.StateUnknown, "k"))
		people := []string{"anna", "bela", "cleo", "dora", "emil", "fritz", "gabi", "hugo"}
		type reply struct {
			entry operator.Entry
			err   error
		}
		replies := make([]reply, len(people))
		var wg sync.WaitGroup
		for i, who := range people {
			a := seen(r)
			a.By = who
			wg.Go(func() {
				switch i % 4 {
				case 0:
					replies[i].entry, replies[i].err = d.Resolve(t.Context(), a, paid)
				case 1:
					replies[i].entry, replies[i].err = d.Decline(t.Context(), a, retrysafe.Result{Status: 402})
				case 2:
					replies[i].entry, replies[i].err = d.Release(t.Context(), a)
				default:
					replies[i].entry, replies[i].err = d.Redrive(t.Context(), a)
				}
			})
		}
		wg.Wait()
		now, winner := load(t, s, r.Ref), ""
		for i, got := range replies {
			if got.err == nil {
				if winner != "" {
					t.Fatalf("%s and %s have both won", winner, people[i])
				}
				winner = people[i]
				lastNote(t, now, winner, got.entry.ID)
			}
		}
		if winner == "" || len(now.Inquiry.Notes) != 1 {
			t.Fatalf("%q has won, and there are %d notes", winner, len(now.Inquiry.Notes))
		}
		for i, got := range replies {
			if people[i] == winner {
				continue
			}
			refused(t, d, got.entry, got.err, operator.ErrStale)
			if text := got.err.Error(); !strings.Contains(text, now.State.String()) || !strings.Contains(text, "operator "+winner) {
				t.Errorf("%s is told %q", people[i], text)
			}
			if got.entry.To != (operator.Snapshot{State: now.State, Revision: now.Revision}) {
				t.Errorf("%s: %+v", people[i], got.entry)
			}
		}
		if n := len(audited(t, d, operator.AuditFilter{Ref: r.Ref})); n != len(people) {
			t.Errorf("%d entries in the audit, want %d", n, len(people))
		}
	})
}

// A stale page does not undo what a client has done since.
func TestW58_StalePageLosesAgainstTheClient(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	d, e := newDesk(t, s, nil), newEngine(t, s, retrysafe.Policy{})
	r := put(t, s, in(retrysafe.StateUnknown, "k"))
	_, err := d.Release(t.Context(), seen(r))
	must(t, err)
	page := load(t, s, r.Ref) // an operator's page: the record is retryable
	_, _, err = asks(t, e, callOf(r), "paid meanwhile")
	must(t, err)
	entry, err := d.Forget(t.Context(), seen(page))
	refused(t, d, entry, err, operator.ErrStale)
	if now := load(t, s, r.Ref); now.State != retrysafe.StateCompleted || string(now.Result.Body) != "paid meanwhile" {
		t.Errorf("%+v", now)
	}
}

// Whatever step of an action is lost, on the way there or back, its repetition
// under the same ID ends it, and the record is changed once.
func TestW58_LostStepsAreRepeatedWithoutHarm(t *testing.T) {
	t.Parallel()
	for name, do := range verbs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, op := range []faultstore.Op{faultstore.Create, faultstore.Load, faultstore.Swap} {
				for _, fault := range []faultstore.Fault{faultstore.LoseRequest, faultstore.LoseReply} {
					for from := 1; from <= 3; from++ {
						testLoss(t, name, do, op, fault, from)
					}
				}
			}
		})
	}
}

// testLoss loses three steps in a row, so that no single call gets over it.
func testLoss(t *testing.T, name string, do verb, op faultstore.Op, fault faultstore.Fault, from int) {
	t.Helper()
	below := memstore.New(nil)
	s := faultstore.New(below)
	d := newDesk(t, s, nil)
	state := retrysafe.StateUnknown
	if name == "forget" || name == "erase" {
		state = retrysafe.StateCompleted
	}
	r := put(t, s, in(state, "k"))
	a := seen(r)
	a.ID = "one-click"
	s.Plan(func(step faultstore.Step) faultstore.Fault {
		if step.Op == op && step.N >= from && step.N < from+3 {
			return fault
		}
		return faultstore.None
	})
	_, err := do(d, t.Context(), a)
	s.Plan(nil)
	var refused *operator.RefusedError
	if errors.As(err, &refused) {
		t.Errorf("%s %d lost (%d): refused, though its outcome cannot be known: %v", op, from, fault, err)
	}
	must(t, d.Drain(t.Context()))
	e, err := do(d, t.Context(), a)
	if err != nil || e.Outcome != operator.StatusDone {
		t.Errorf("%s %d lost (%d): the repetition got %+v, %v", op, from, fault, e, err)
	}
	if now := load(t, below, r.Ref); len(now.Inquiry.Notes) != 1 {
		t.Errorf("%s %d lost (%d): %d notes, want 1", op, from, fault, len(now.Inquiry.Notes))
	}
}

// An operator's process that dies between the action and its audit entry has stored
// the operator's name and reason; the repeated action finds its own note.
func TestW58_DeathBetweenActAndEntry(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, below retrysafe.Store) {
		s := faultstore.New(below)
		r := put(t, s, in(retrysafe.StateUnknown, "k"))
		a := seen(r)
		a.ID = "one-click"
		acted := false
		s.Plan(func(step faultstore.Step) faultstore.Fault {
			if step.Op == faultstore.Swap && step.Write.Ref == r.Ref {
				acted = true
				return faultstore.None
			}
			if acted {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		dead := newDesk(t, s, nil)
		t.Cleanup(func() {
			s.Plan(nil)
			_ = dead.Drain(context.Background()) // as far as this test goes it is dead
		})
		if e, err := dead.Release(t.Context(), a); err == nil || e.Outcome != operator.StatusOpen || e.ID != a.ID {
			t.Fatalf("%+v, %v", e, err)
		}
		if now := load(t, below, r.Ref); now.State != retrysafe.StateRetryable {
			t.Fatalf("it is %s", now.State)
		}
		d := newDesk(t, below, nil) // another process
		all := audited(t, d, operator.AuditFilter{})
		if len(all) != 1 || all[0].Outcome != operator.StatusOpen || all[0].By != anna || all[0].Why != a.Why || all[0].Ref != r.Ref {
			t.Fatalf("the audit has %+v", all)
		}
		own := load(t, below, retrysafe.Ref{Scope: retrysafe.SystemScope("operator"), Key: a.ID}).Update()
		own.Term = 0
		if own.State == retrysafe.StateInProgress { // its lease ends
			_, err := below.Swap(t.Context(), own)
			must(t, err)
		}
		e, err := d.Release(t.Context(), a)
		if err != nil || e.Outcome != operator.StatusDone || e.Attempt != 2 || e.To.State != retrysafe.StateRetryable {
			t.Errorf("%+v, %v", e, err)
		}
		if now := load(t, below, r.Ref); len(now.Inquiry.Notes) != 1 {
			t.Errorf("%d notes, want 1", len(now.Inquiry.Notes))
		}
	})
}

// held is a store whose record a transaction holds for a while.
type held struct {
	retrysafe.Store
	ref     retrysafe.Ref
	replies []error // to swaps of ref, before it is let through
}

func (h *held) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if w.Ref != h.ref || len(h.replies) == 0 {
		return h.Store.Swap(ctx, w)
	}
	err := h.replies[0]
	h.replies = h.replies[1:]
	return retrysafe.Record{}, err
}

// An owner that holds its record in a transaction is alive, so the action is refused.
// After a first try whose reply was lost the transaction may be that try's own: then
// the action stays open.
func TestHeldRecordIsLive(t *testing.T) {
	t.Parallel()
	s := &held{Store: memstore.New(nil)}
	r := put(t, s, in(retrysafe.StateUnknown, "k"))
	d := newDesk(t, s, nil)
	s.ref, s.replies = r.Ref, []error{retrysafe.ErrBusy}
	e, err := d.Release(t.Context(), seen(r))
	refused(t, d, e, err, operator.ErrLive)

	a := seen(r)
	a.ID = "one-click"
	s.replies = []error{errors.New("the line broke"), retrysafe.ErrBusy, retrysafe.ErrBusy}
	if e, err := d.Release(t.Context(), a); !errors.Is(err, retrysafe.ErrBusy) || e.Outcome != operator.StatusOpen {
		t.Errorf("%+v, %v", e, err)
	}
	if all := audited(t, d, operator.AuditFilter{ID: a.ID}); len(all) != 1 || all[0].Outcome != operator.StatusOpen || !strings.Contains(all[0].Text, retrysafe.ErrBusy.Error()) {
		t.Errorf("why it is open is not in the audit: %+v", all)
	}
	e, err = d.Release(t.Context(), a)
	if err != nil || e.Outcome != operator.StatusDone || e.Attempt != 2 {
		t.Errorf("%+v, %v", e, err)
	}
}

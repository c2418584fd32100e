package move_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// A store that was moved refuses every step with an error that says where it is now,
// and does not move again.
func TestMovedStoreSaysWhere(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		a, b := newSource(t), newDestination(t)
		from, to := served(t, a), served(t, b)
		stock(t, from)
		_, err := move.Records(t.Context(), from, to, &move.Options{From: "the attic", To: "the\ncellar"})
		must(t, err)
		ctx := t.Context()
		_, list := from.List(ctx, retrysafe.Query{})
		_, load := from.Load(ctx, call("open 1").Ref)
		_, create := from.Create(ctx, reserved("new"))
		_, swap := from.Swap(ctx, answered("open 1"))
		_, purge := from.Purge(ctx, 10)
		_, opens := a.openWith(ctx, false)
		_, again := move.Records(ctx, from, served(t, newDestination(t)), nil)
		_, same := move.Records(ctx, opened(t, a), opened(t, b), nil)
		busy := served(t, newDestination(t))
		must(t, busy.Mover().Fill(ctx, retrysafe.Owner{1}, retrysafe.Owner{2}, "a third"))
		_, third := move.Records(ctx, from, busy, nil)
		_, dry := move.Records(ctx, from, served(t, newDestination(t)), &move.Options{DryRun: true})
		refused := map[string]error{
			"List": list, "Load": load, "Create": create, "Swap": swap, "Purge": purge, "Open": opens,
			"a second move": again, "the same move": same, "where another moves to": third, "a dry run": dry, "to abandon it": move.Abandon(ctx, from, to),
		}
		if s, ok := from.(retrysafe.Counter); ok {
			_, refused["Count"] = s.Count(ctx, "acct_1")
		}
		if box := boxOf(from); box != nil { // it has transactions too
			_, refused["outbox"] = box.Lease(ctx, retrysafe.Owner{1}, time.Minute)
			refused["DoTx"] = doTx(ctx, t, from)
		}
		for step, err := range refused {
			if err == nil || !isClosed(err) || !strings.Contains(err.Error(), `moved to the\ncellar on 2`) || !strings.Contains(err.Error(), "point the configuration there") {
				t.Errorf("%s: %v", step, err)
			}
		}
	})
}

// doTx runs a key in a transaction of its own, which must not commit.
func doTx(ctx context.Context, t *testing.T, s retrysafe.Store) error {
	t.Helper()
	e := engine(t, s, retrysafe.Policy{Effects: retrysafe.EffectsInTx})
	switch s := s.(type) {
	case *sqlitestore.Store:
		return run(ctx, t, e, s)
	case *pgstore.Store:
		return run(ctx, t, e, s)
	case *mysqlstore.Store:
		return run(ctx, t, e, s)
	}
	return nil
}

func run[T any](ctx context.Context, t *testing.T, e *retrysafe.Engine, s retrysafe.TxStore[T]) error {
	t.Helper()
	_, err := retrysafe.DoTx(ctx, e, s, call("in a transaction"), func(context.Context, T) (retrysafe.Result, error) {
		t.Error("a key ran in a store that is closed")
		return retrysafe.Result{Status: 200}, nil
	})
	return err
}

// boxOf returns the outbox of a store, nil if it has none.
func boxOf(s retrysafe.Store) outbox.Store {
	switch s := s.(type) {
	case *sqlitestore.Store:
		return s.Outbox()
	case *mysqlstore.Store:
		return s.Outbox()
	case *pgstore.Store:
		return s.Outbox()
	}
	return nil
}

// Messages do not move, so a store that has any does not either.
func TestOutboxMustBeEmpty(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres", "mysql"} {
		for _, when := range []move.Stage{"", move.Cutting} {
			t.Run(kind+" "+string(when), func(t *testing.T) {
				t.Parallel()
				from, to := served(t, kinds[kind](t)), served(t, kinds["sqlite"](t))
				stock(t, from)
				want := everything(t, from)
				if when == "" {
					enqueue(t, from)
				}
				_, err := move.Records(t.Context(), from, to, &move.Options{Progress: func(p move.Progress) {
					if p.Stage == when {
						enqueue(t, from)
					}
				}})
				if err == nil || !strings.Contains(err.Error(), "1 messages wait and 0 are dead letters") || !strings.Contains(err.Error(), "copy again") {
					t.Errorf("Records = %v", err)
				}
				unmoved(t, from, to, want)
			})
		}
	}
}

func enqueue(t *testing.T, s retrysafe.Store) {
	t.Helper()
	m := outbox.Message{Topic: "payments", Payload: []byte("hello")}
	switch s := s.(type) {
	case *sqlitestore.Store:
		tx, err := s.DB().BeginTx(t.Context(), nil)
		must(t, err)
		must(t, errors.Join(s.Tx(tx).Enqueue(t.Context(), m), tx.Commit()))
	case *mysqlstore.Store:
		tx, err := s.DB().BeginTx(t.Context(), nil)
		must(t, err)
		must(t, errors.Join(s.Tx(tx).Enqueue(t.Context(), m), tx.Commit()))
	case *pgstore.Store:
		tx, err := s.Pool().Begin(t.Context())
		must(t, err)
		must(t, errors.Join(s.Tx(tx).Enqueue(t.Context(), m), tx.Commit(t.Context())))
	}
}

// Sealed records move as they are: with the secrets they can be read at the
// destination.
func TestSealedRecordsMoveBelow(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		from, to := served(t, newSource(t)), served(t, newDestination(t))
		first, err := pay(t.Context(), engine(t, sealedOver(t, from), retrysafe.Policy{}), "secret", func() {})
		must(t, err)
		_, err = move.Records(t.Context(), from, to, nil)
		must(t, err)
		again, err := pay(t.Context(), engine(t, sealedOver(t, to), retrysafe.Policy{}), "secret", func() { t.Error("it ran again") })
		if err != nil || !bytes.Equal(again.Body, first.Body) || !again.Replayed {
			t.Errorf("it was %q and is %q, %v", first.Body, again.Body, err)
		}
	})
}

func sealedOver(t *testing.T, s retrysafe.Store) retrysafe.Store {
	t.Helper()
	keys, err := sealed.NewKeyring(bytes.Repeat([]byte{1}, sealed.KeySize), 1, map[uint32][]byte{1: bytes.Repeat([]byte{2}, sealed.KeySize)})
	must(t, err)
	above, err := sealed.New(s, keys)
	must(t, err)
	return above
}

// A dry run counts, and changes nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		from, to := served(t, newSource(t)), served(t, newDestination(t))
		stock(t, from)
		want := everything(t, from)
		calls := 0
		report, err := move.Records(t.Context(), from, to, &move.Options{DryRun: true, Batch: 20, Progress: func(move.Progress) { calls++ }})
		must(t, err)
		if report.Records != 36 || report.States[retrysafe.StateInProgress] != 12 || report.States[retrysafe.StateCompleted] != 24 || calls < 2 {
			t.Errorf("%+v, told %d times", report, calls)
		}
		unmoved(t, from, to, want)
		serves(t, to)
	})
}

// What was in flight at the cut lapses at the destination by its own policy; its owner
// cannot settle it in either store. Work that was accepted has its request.
func TestWhatIsInFlightMoves(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		from, to := served(t, newSource(t)), served(t, newDestination(t))
		old := engine(t, from, retrysafe.Policy{Lease: time.Second, MaxRun: 3 * time.Second})
		began, end := make(chan struct{}), make(chan struct{})
		var late error
		var owner sync.WaitGroup
		owner.Go(func() {
			_, late = old.Do(t.Context(), call("in flight"), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
				close(began)
				<-end
				return retrysafe.Result{Status: 201, Body: []byte("too late")}, nil
			})
		})
		<-began
		accepted := reserved("accepted")
		accepted.State, accepted.Attempt, accepted.Request = retrysafe.StateAccepted, 0, []byte("do this")
		_, err := from.Create(t.Context(), accepted)
		must(t, err)
		_, err = move.Records(t.Context(), from, to, nil)
		must(t, err)
		close(end)
		owner.Wait()
		if late == nil {
			t.Error("an owner was told that its answer is stored, in a store that is closed")
		}
		e := engine(t, to, retrysafe.Policy{})
		for {
			_, err := pay(t.Context(), e, "in flight", func() { t.Error("it ran again") })
			if errors.Is(err, retrysafe.ErrUnknown) {
				break
			}
			if !errors.Is(err, retrysafe.ErrInFlight) {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if r, err := to.Load(t.Context(), accepted.Ref); err != nil || r.State != retrysafe.StateAccepted || string(r.Request) != "do this" {
			t.Errorf("what was accepted is %+v, %v", r, err)
		}
	})
}

// TestW60_ReadsWhileMoving: a replay is the same bytes in every stage of a move, and
// fails only when the source is closed.
func TestW60_ReadsWhileMoving(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		from, to := served(t, newSource(t)), served(t, newDestination(t))
		stock(t, from)
		e := engine(t, from, retrysafe.Policy{})
		first, err := pay(t.Context(), e, "read", func() {})
		must(t, err)
		replays := map[move.Stage]int{}
		_, err = move.Records(t.Context(), from, to, &move.Options{Batch: 10, Progress: func(p move.Progress) {
			out, err := pay(t.Context(), e, "read", func() { t.Error("it ran again") })
			switch {
			case p.Stage == move.Opening && isClosed(err):
			case err != nil || !bytes.Equal(out.Body, first.Body):
				t.Errorf("when %s: %q, %v", p.Stage, out.Body, err)
			default:
				replays[p.Stage]++
			}
		}})
		must(t, err)
		if len(replays) != 3 {
			t.Errorf("replayed %v", replays)
		}
	})
}

// A mover that is overtaken by another, also one of the same source, does nothing any
// more, and the other one ends well.
func TestOvertakenMoverDoesNothing(t *testing.T) {
	t.Parallel()
	for _, when := range []move.Stage{move.Copying, move.Catching, move.Cutting} {
		t.Run(string(when), func(t *testing.T) {
			t.Parallel()
			pairs(t, func(t *testing.T, newSource, newDestination maker) {
				a, b := newSource(t), newDestination(t)
				from, to := served(t, a), served(t, b)
				stock(t, from)
				want := everything(t, from)
				done := false
				_, err := move.Records(t.Context(), from, to, &move.Options{Batch: 10, Progress: func(p move.Progress) {
					if p.Stage == when && !done {
						done = true
						_, err := move.Records(t.Context(), opened(t, a), opened(t, b), nil)
						must(t, err)
					}
				}})
				if err == nil {
					t.Error("both have moved everything")
				}
				same(t, everything(t, to), want, time.Hour)
				serves(t, to)
			})
		})
	}
}

// An interrupt after the cut does not stop the move: neither store would be open.
func TestInterruptAfterTheCutDoesNotStopTheMove(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		from, to := served(t, newSource(t)), served(t, newDestination(t))
		stock(t, from)
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		_, err := move.Records(ctx, from, to, &move.Options{Progress: func(p move.Progress) {
			if p.Stage == move.Opening {
				interrupt()
			}
		}})
		must(t, err)
		serves(t, to)
	})
}

// A destination that is being filled is not emptied for another source: once its own
// source is retired, the destination has the only open copy. Only a move from that
// source may finish or abandon it.
func TestFillingDestinationIsKept(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		a, b, c := newSource(t), newDestination(t), newSource(t)
		from, to, other := served(t, a), served(t, b), served(t, c)
		stock(t, from)
		want := everything(t, from)
		_, err := move.Records(t.Context(), from, deadEnd{to}, &move.Options{From: "the attic"})
		if !errors.Is(err, move.ErrNotOpened) {
			t.Fatalf("Records = %v", err)
		}
		if held(t, 0, from, to) {
			t.Error("the source is open")
		}
		_, err = b.openWith(t.Context(), false)
		if !isClosed(err) || !strings.Contains(err.Error(), "being filled from the attic") {
			t.Errorf("Open = %v", err)
		}
		if _, err := move.Records(t.Context(), other, to, nil); !isClosed(err) {
			t.Errorf("another source: %v", err)
		}
		for name, err := range map[string]error{"another source": move.Abandon(t.Context(), other, to), "its own": move.Abandon(t.Context(), from, to)} {
			if !isClosed(err) {
				t.Errorf("%s abandons it: %v", name, err)
			}
		}
		serves(t, other)
		report, err := move.Records(t.Context(), opened(t, a), opened(t, b), &move.Options{DryRun: true})
		if err != nil || !report.Finished {
			t.Errorf("a dry run says %+v, %v", report, err)
		}
		report, err = move.Records(t.Context(), opened(t, a), opened(t, b), nil)
		if err != nil || !report.Finished {
			t.Errorf("Records = %+v, %v", report, err)
		}
		same(t, everything(t, to), want, time.Hour)
	})
}

// deadEnd is a destination that cannot be opened.
type deadEnd struct{ store }

func (d deadEnd) Mover() storemove.Store { return deadEndMover{d.store.Mover()} }

type deadEndMover struct{ storemove.Store }

func (deadEndMover) Filled(context.Context, retrysafe.Owner) error { return errBroken }

// A move that was killed can be given up.
func TestAbandon(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		a, b := newSource(t), newDestination(t)
		from, to := served(t, a), served(t, b)
		stock(t, from)
		want := everything(t, from)
		must(t, move.Abandon(t.Context(), from, to)) // nothing was begun
		unmoved(t, from, to, want)
		err := child(t, "mover", envFrom+"="+string(a), envTo+"="+string(b), fmt.Sprint(envPoint, "=", 10)).Run()
		if err == nil {
			t.Fatal("the mover was not killed")
		}
		if _, err := to.List(t.Context(), retrysafe.Query{}); !isClosed(err) {
			t.Fatalf("the destination is not closed: %v", err)
		}
		must(t, move.Abandon(t.Context(), opened(t, a), opened(t, b)))
		unmoved(t, from, to, want)
		serves(t, from)
		serves(t, to)
	})
}

// A destination that was closed before a move takes no key until the move has filled it,
// also not after a move that failed. It is opened by giving the move up.
func TestPreparedDestinationStaysClosed(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, newSource, newDestination maker) {
		a, b := newSource(t), newDestination(t)
		from, to := served(t, a), served(t, b)
		stock(t, from)
		want := everything(t, from)
		closed := func(when string) {
			t.Helper()
			_, create := to.Create(t.Context(), reserved("new"))
			_, opens := b.openWith(t.Context(), false)
			for _, err := range []error{create, opens} {
				if !isClosed(err) || !strings.Contains(err.Error(), "being filled from the attic") {
					t.Errorf("%s: %v", when, err)
				}
			}
			same(t, everything(t, from), want, 0)
		}
		opts := &move.Options{From: "the attic"}
		must(t, move.Prepare(t.Context(), from, to, opts))
		closed("prepared")
		if _, err := move.Records(t.Context(), from, &failing{store: opened(t, b), left: 1}, opts); !errors.Is(err, errBroken) {
			t.Fatalf("Records = %v", err)
		}
		closed("after a move that failed")
		must(t, move.Abandon(t.Context(), from, opened(t, b)))
		if len(everything(t, to)) != 0 {
			t.Error("a move that was given up has left records")
		}
		must(t, move.Prepare(t.Context(), from, to, opts))
		_, err := move.Records(t.Context(), opened(t, a), opened(t, b), opts)
		must(t, err)
		same(t, everything(t, to), want, time.Hour)
		serves(t, to)
		if err := move.Prepare(t.Context(), from, to, opts); !isClosed(err) {
			t.Errorf("Prepare from a store that was moved = %v", err)
		}
		if err := move.Prepare(t.Context(), to, served(t, newSource(t)), nil); err != nil {
			t.Error(err)
		}
	})
}

package move_test

import (
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/move"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func reserved(key string) retrysafe.Write {
	c := call(key)
	w := retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
		Ref: c.Ref, Operation: c.Operation, Fingerprint: c.Fingerprint, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion,
		Attempt: 1, Retain: 24 * time.Hour,
	}}
	_, _ = crand.Read(w.Owner[:])
	return w
}

// answered is a key that has its answer.
func answered(key string) retrysafe.Write {
	w := reserved(key)
	w.State, w.Result = retrysafe.StateCompleted, &retrysafe.Result{Status: 201, Body: []byte("the answer of " + key)}
	return w
}

// forgotten is a key that the next purge may take.
func forgotten(name string) retrysafe.Write {
	w := answered("forgotten " + name)
	w.Term = -time.Second
	return w
}

// stock puts keys in several states into a store.
func stock(t testing.TB, s retrysafe.Store) {
	t.Helper()
	for n := range 12 {
		for _, w := range []retrysafe.Write{reserved(fmt.Sprint("open ", n)), answered(fmt.Sprint("done ", n)), forgotten(fmt.Sprint(n))} {
			_, err := s.Create(t.Context(), w)
			must(t, err)
		}
	}
}

// isClosed reports whether a move has closed the store.
func isClosed(err error) bool {
	for _, closed := range []error{sqlitestore.ErrMoved, sqlitestore.ErrFilling, pgstore.ErrMoved, pgstore.ErrFilling} {
		if errors.Is(err, closed) {
			return true
		}
	}
	return false
}

// A mover is killed before and after its steps, at each of them with -move.everypoint. In between the source is
// used, if it is open. Whatever was at the source when it closed is at the destination
// when that is open, and never are both.
func TestKilledMoverIsRunAgain(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"sqlite", "postgres"}, {"postgres", "sqlite"}, {"mysql", "sqlite"}, {"sqlite", "mysql"}, {"redis", "dynamodb"}, {"dynamodb", "redis"}} {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			t.Parallel()
			stride, n := 5, 0
			if strings.Contains(pair[0], "dynamodb") || strings.Contains(pair[1], "dynamodb") { // whose moves wait for permits
				stride = 8
			}
			if *everyPoint {
				stride = 1
			}
			point := 1 + rand.IntN(stride)
			for ; killOnce(t, kinds[pair[0]](t), kinds[pair[1]](t), point); point += stride {
				n++
			}
			if point < 20 {
				t.Errorf("only %d points were passed; the sweep missed the steps", point)
			}
			t.Logf("killed at %d points of %d", n, point-stride)
		})
	}
}

// killOnce kills a mover at one point and checks what is left. It reports whether the
// mover got as far.
func killOnce(t *testing.T, a, b place, point int) (killed bool) {
	t.Helper()
	from, to := served(t, a), served(t, b) // as servers that have been there before
	stock(t, from)
	var exit *exec.ExitError
	err := child(t, "mover", envFrom+"="+string(a), envTo+"="+string(b), fmt.Sprint(envPoint, "=", point)).Run()
	if killed = errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled(); !killed && err != nil {
		t.Fatalf("point %d: the mover failed by itself: %v", point, err)
	}
	if held(t, point, from, to) {
		must(t, churn(t.Context(), from, "a server"))
	}
	before := everythingIn(t, a, from)

	report, err := move.Records(t.Context(), opened(t, a), opened(t, b), &move.Options{Batch: 20})
	if err != nil && !isClosed(err) {
		t.Fatalf("point %d: run again: %v", point, err)
	}
	if held(t, point, from, to) {
		t.Errorf("point %d: the source is open after the move", point)
	}
	same(t, everything(t, to), before, time.Hour)
	if t.Failed() {
		t.Fatalf("point %d: %+v", point, report)
	}
	must(t, errors.Join(from.Close(), to.Close()))
	return killed
}

// held reports whether the source is open, and makes sure that the destination is
// closed then or has nothing in it. A key that is asked for where it is closed is
// refused, and does not run.
func held(t *testing.T, point int, from, to store) bool {
	t.Helper()
	ran := map[retrysafe.Store]bool{}
	for _, s := range []store{from, to} {
		_, err := s.List(t.Context(), retrysafe.Query{Limit: 1})
		for err != nil && !isClosed(err) { // the server has not noticed yet that the mover is dead
			time.Sleep(10 * time.Millisecond)
			_, err = s.List(t.Context(), retrysafe.Query{Limit: 1})
		}
		if err == nil {
			ran[s] = true
			continue
		}
		_, err = pay(t.Context(), engine(t, s, retrysafe.Policy{}), "a new key", func() { t.Errorf("point %d: a key ran in a store that is closed", point) })
		if !errors.Is(err, retrysafe.ErrUnavailable) || !isClosed(err) {
			t.Errorf("point %d: a closed store said %v", point, err)
		}
	}
	if ran[from] && ran[to] && len(everything(t, to)) > 0 {
		t.Errorf("point %d: both are open", point)
	}
	return ran[from]
}

// everythingIn returns the records of the source, whether it is open or not.
func everythingIn(t *testing.T, a place, from store) (all map[retrysafe.Ref]retrysafe.Record) {
	t.Helper()
	if _, err := from.List(t.Context(), retrysafe.Query{Limit: 1}); err == nil {
		return everything(t, from)
	}
	a.reopened(t, func() { all = everything(t, from) })
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) { // a permit may last
		if _, err := from.List(t.Context(), retrysafe.Query{Limit: 1}); err != nil {
			return all
		}
		if time.Since(start) > time.Minute {
			t.Fatal("the source is still open")
		}
	}
}

package crashtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// depot is the parent's side: a garage, a provider, and children that are killed.
type depot[X any] struct {
	ride[X]
	t     *testing.T
	where string
	at    *provider
	mode  string
	e     *retrysafe.Engine
}

func newDepot[X any](t *testing.T, open OpenGarage[X], where, mode string) *depot[X] {
	t.Helper()
	g, err := open(t.Context(), where)
	must(t, err)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, table := range []string{"rides", "receipts"} { // no unique constraint: only the transactions prevent a second row
		_, err := g.DB.ExecContext(t.Context(), `CREATE TABLE IF NOT EXISTS `+table+` (ride TEXT NOT NULL)`)
		must(t, err)
	}
	d := &depot[X]{t: t, where: where, at: newProvider(t), mode: mode}
	d.ride = ride[X]{Garage: g, provider: d.at.URL}
	d.e, err = d.engine(mode)
	must(t, err)
	return d
}

// kill lets a child book a ride, and returns the answer that its client got before the
// child was killed.
func (d *depot[X]) kill(key string, point int, death string) (shown string, killed bool) {
	child := exec.CommandContext(d.t.Context(), os.Args[0], "-test.run="+only(d.t.Name()))
	child.Env = append(os.Environ(), envRideWhere+"="+d.where, envRideKey+"="+key, envRideMode+"="+d.mode,
		envRidePoint+"="+strconv.Itoa(point), envRideProvider+"="+d.at.URL, envRideDeath+"="+death)
	printed, err := child.Output()
	var exit *exec.ExitError
	if killed = errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled(); !killed && err != nil {
		d.t.Errorf("%s: the child failed by itself: %v\n%s", key, err, printed)
	}
	if _, rest, ok := strings.Cut(string(printed), acknowledged); ok {
		shown, _, _ = strings.Cut(rest, "\n")
	}
	return shown, killed
}

// only returns the pattern that matches one test, which may be a subtest, and none beside
// it.
func only(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// record returns the record of a ride and its steps, if there are any.
func (d *depot[X]) record(key string) (retrysafe.Record, []retrysafe.Step) {
	r, err := d.Store.Load(d.t.Context(), retrysafe.Ref{Scope: "tenant", Key: key})
	if err != nil && !errors.Is(err, retrysafe.ErrNotFound) {
		d.t.Error(err)
	}
	steps, err := r.Checkpoint.Steps()
	if err != nil {
		d.t.Error(err)
	}
	return r, steps
}

// settle retries until the ride is final, and returns its answer, or nil if the outcome
// is unknown.
func (d *depot[X]) settle(key string) *retrysafe.Outcome {
	for deadline := time.Now().Add(Lease + patience); ; time.Sleep(20 * time.Millisecond) {
		out, err := d.book(d.t.Context(), d.e, key)
		switch {
		case err == nil:
			return &out
		case errors.Is(err, retrysafe.ErrUnknown):
			return nil
		case time.Now().After(deadline):
			d.t.Errorf("%s is not final long after its lease: %v", key, err)
			return nil
		}
	}
}

// rows checks that a ride was booked once, and has one receipt.
func (d *depot[X]) rows(key string) {
	for _, table := range []string{"rides", "receipts"} {
		var n int
		if err := d.DB.QueryRowContext(d.t.Context(), `SELECT count(*) FROM `+table+` WHERE ride = '`+key+`'`).Scan(&n); err != nil || n != 1 {
			d.t.Errorf("%s has %d rows in %s, want 1 (%v)", key, n, table, err)
		}
	}
}

// atOnce calls do with 0, 1, …, a few at a time, until one call returns false.
func atOnce(do func(i int) bool) {
	var next atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !stop.Load() {
				if !do(int(next.Add(1))) {
					stop.Store(true)
				}
			}
		})
	}
	all.Wait()
}

// SweepRide kills a child that books a ride at every point, before and after each step
// of the store and inside of each phase. Each time a retry finishes the ride, and
// finished steps are not repeated.
func SweepRide[X any](t *testing.T, open OpenGarage[X], where func(t *testing.T) string) {
	t.Helper()
	if isRide(t, open) {
		return
	}
	d := newDepot(t, open, where(t), "keyed")
	var points atomic.Int64
	atOnce(func(point int) bool {
		key := fmt.Sprintf("point-%d", point)
		shown, killed := d.kill(key, point, "")
		_, steps := d.record(key)
		charged, calls := false, d.at.of(key)
		for i := range steps {
			charged = charged || steps[i].Name == "charge" && !steps[i].Open
		}
		final := d.settle(key)
		switch {
		case final == nil:
			t.Errorf("%s has no answer", key)
		case shown != "" && shown != string(final.Body):
			t.Errorf("%s: a client was shown %q, a retry gets %q", key, shown, final.Body)
		}
		d.rows(key)
		if after := d.at.of(key); after < 1 || charged && after != calls {
			t.Errorf("%s: the provider was called %d times, %d before the crash; the charge was stored: %v", key, after, calls, charged)
		}
		if killed {
			points.Add(1)
		}
		return killed
	})
	if points.Load() < 20 {
		t.Errorf("only %d points were passed; the sweep missed the steps", points.Load())
	}
	t.Logf("killed at %d points", points.Load())
}

// KillAroundTheCharge kills a child between an outside charge and its record, rounds
// times. Where the provider honours keys there is one charge, and every ride ends with
// its answer. Where the charge is unprotected there is no second call, however often
// the client retries.
func KillAroundTheCharge[X any](t *testing.T, open OpenGarage[X], where func(t *testing.T) string, rounds int) {
	t.Helper()
	if isRide(t, open) {
		return
	}
	deaths := []string{deathInCall, deathAfterReply}
	t.Run("keyed", func(t *testing.T) {
		t.Parallel()
		d := newDepot(t, open, where(t), "keyed")
		atOnce(func(round int) bool {
			if round > rounds {
				return false
			}
			key := fmt.Sprintf("round-%d", round)
			d.die(key, deaths[round%2])
			if final := d.settle(key); final == nil {
				t.Errorf("%s has no answer", key)
			}
			d.rows(key)
			if calls := d.at.of(key); calls != 2 {
				t.Errorf("%s: the provider was called %d times, want 2", key, calls)
			}
			return true
		})
		if len(d.at.charges) != rounds {
			t.Errorf("%d charges for %d rides", len(d.at.charges), rounds)
		}
	})
	t.Run("unprotected", func(t *testing.T) {
		t.Parallel()
		d := newDepot(t, open, where(t), "unprotected")
		for round, death := range deaths {
			key := fmt.Sprintf("unprotected-%d", round)
			d.die(key, death)
			for range 10 {
				if final := d.settle(key); final != nil {
					t.Errorf("%s was answered: %s", key, final.Body)
				}
			}
			if r, _ := d.record(key); r.State != retrysafe.StateUnknown || d.at.of(key) != 1 {
				t.Errorf("%s is %s, and the provider was called %d times", key, r.State, d.at.of(key))
			}
		}
	})
}

// die kills a child around its charge, and checks that its record has the intent.
func (d *depot[X]) die(key, death string) {
	if shown, killed := d.kill(key, 0, death); !killed || shown != "" {
		d.t.Errorf("%s: the child was not killed, and showed %q", key, shown)
	}
	if _, steps := d.record(key); len(steps) != 2 || !steps[1].Open || len(steps[1].Request) == 0 || d.at.of(key) != 1 {
		d.t.Errorf("%s: after the crash is stored %+v, and the provider was called %d times", key, steps, d.at.of(key))
	}
}

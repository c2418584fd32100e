package crashtest

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// patience is how long after its lease a key may take to become final.
const patience = 5 * time.Second

// Sweep kills a child at every point of every mode and checks what is left. Each
// time, fresh names a place with nothing in it.
func Sweep(t *testing.T, open Open, fresh func(t *testing.T) string) {
	t.Helper()
	for i := range modes {
		m := &modes[i]
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			point := 1
			for ; sweepOne(t, m, point, open, fresh); point++ {
			}
			if point < 5 {
				t.Errorf("only %d points were passed; the sweep missed the steps", point)
			}
			t.Logf("killed at %d points", point-1)
		})
	}
}

// sweepOne kills a child at one point and checks what is left. It reports
// whether the child got as far as that point.
func sweepOne(t *testing.T, m *mode, point int, open Open, fresh func(t *testing.T) string) (killed bool) {
	t.Helper()
	where := fresh(t)
	p, err := open(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	table := `CREATE TABLE effects (by TEXT NOT NULL PRIMARY KEY)`
	if m.policy.Effects == retrysafe.InTx { // nothing but the transaction keeps a second one out
		table = `CREATE TABLE effects (by TEXT NOT NULL)`
	}
	if _, err := p.DB.ExecContext(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	shown, acknowledged, killed := crash(t, m, point, where)
	final := settle(t, m, point, p)

	if acknowledged && (final == nil || string(final.Body) != shown) {
		t.Errorf("point %d: a client was shown %q, a retry gets %+v", point, shown, final)
	}
	var effects int
	if err := p.DB.QueryRowContext(t.Context(), `SELECT count(*) FROM effects`).Scan(&effects); err != nil {
		t.Fatal(err)
	}
	switch {
	case m.once && (effects != 1 || final == nil):
		t.Errorf("point %d: %d effects, and the answer %+v; want exactly one, and an answer", point, effects, final)
	case effects > 1:
		t.Errorf("point %d: %d unprotected effects", point, effects)
	case final != nil && effects != 1:
		t.Errorf("point %d: an answer without an effect", point)
	}
	return killed
}

// crash lets a child run the operation as far as the point, and returns what a
// client was shown before.
func crash(t *testing.T, m *mode, point int, where string) (shown string, acked, killed bool) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), envWhere+"="+where, envMode+"="+m.name, envPoint+"="+strconv.Itoa(point))
	printed, err := child.Output()
	var exit *exec.ExitError
	if killed = errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled(); !killed && err != nil {
		t.Fatalf("point %d: the child failed by itself: %v, %s", point, err, printed)
	}
	shown, acked = strings.CutPrefix(string(printed), acknowledged)
	return shown, acked, killed
}

// settle retries until the key is final, and returns its answer, or nil if nobody
// knows whether it happened.
func settle(t *testing.T, m *mode, point int, p *Place) *retrysafe.Outcome {
	t.Helper()
	e, err := m.engine(p.Store)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(Lease + patience); ; time.Sleep(20 * time.Millisecond) {
		out, err := m.pay(t.Context(), p, e, &Fuse{})
		switch {
		case err == nil:
			return &out
		case errors.Is(err, retrysafe.ErrUnknown):
			return nil
		case time.Now().After(deadline): // an attempt may fail: on a busy machine it outlives so short a lease
			t.Fatalf("point %d: the key is not final after its lease and %v: %v", point, patience, err)
		}
	}
}

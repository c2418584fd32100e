// Package crashtest sweeps the crashes of a client over a store: a child process
// runs one operation and is killed, with no warning, before and after each step
// that it takes towards the database. Its parent then opens the same database,
// retries until the key is final, and counts effects.
//
// A store's test needs two functions:
//
//	func TestMain(m *testing.M) {
//		if crashtest.IsChild() {
//			os.Exit(crashtest.RunChild(openPlace))
//		}
//		m.Run()
//	}
//
//	func TestCrashSweep(t *testing.T) {
//		crashtest.Sweep(t, openPlace, func(t *testing.T) string { return t.TempDir() })
//	}
package crashtest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Lease is how long a killed attempt is believed to live.
const Lease = 200 * time.Millisecond

// What the child is told, by its environment.
const (
	envWhere = "RETRYSAFE_CRASH_WHERE"
	envMode  = "RETRYSAFE_CRASH_MODE"
	envPoint = "RETRYSAFE_CRASH_POINT"
)

// A Place is one database: the store, and a table of effects that each mode of the
// operation adds a row to.
type Place struct {
	Store retrysafe.Store
	// DB is the store's own database. Effects outside of a transaction go there.
	DB *sql.DB
	// InTx adds an effect by effect, a statement, and completes x in one
	// transaction. It passes the fuse between its steps.
	InTx func(ctx context.Context, x *retrysafe.Execution, effect string, r retrysafe.Result, f *Fuse) error
	// OneCommit runs call by [retrysafe.DoTx]; see [OneCommit].
	OneCommit func(ctx context.Context, e *retrysafe.Engine, effect string, r retrysafe.Result, f *Fuse) (retrysafe.Outcome, error)
	// Close ends all of it.
	Close func() error
}

// Open opens the place that where names. It makes no tables but the store's.
type Open func(ctx context.Context, where string) (*Place, error)

// Call is the operation that is crashed.
var Call = retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: "key"}, Operation: "pay"}

// A Fuse kills the process when it is passed for the n-th time, by whom ever:
// a heartbeat passes it too.
type Fuse struct {
	mu   sync.Mutex
	left int
}

// Pass is called before and after each step that may be the last.
func (f *Fuse) Pass() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left--; f.left == 0 {
		die()
	}
}

// die ends the process with no warning.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func around[T any](f *Fuse, do func() (T, error)) (T, error) {
	f.Pass()
	defer f.Pass()
	return do()
}

// mined is a store with a fuse before and after each step.
type mined struct {
	retrysafe.Store
	fuse *Fuse
}

func (m mined) Create(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return around(m.fuse, func() (retrysafe.Record, error) { return m.Store.Create(ctx, r) })
}

func (m mined) Swap(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return around(m.fuse, func() (retrysafe.Record, error) { return m.Store.Swap(ctx, r) })
}

const (
	txEffect    = `INSERT INTO effects (by) VALUES ('tx')`
	onceEffect  = `INSERT INTO effects (by) VALUES ($1) ON CONFLICT DO NOTHING`
	plainEffect = `INSERT INTO effects (by) VALUES ($1)`
)

// A mode is one way to run the operation.
type mode struct {
	name   string
	policy retrysafe.Policy
	// once: its effect is there exactly once, whatever happens.
	once bool
	pay  func(ctx context.Context, p *Place, e *retrysafe.Engine, f *Fuse) (retrysafe.Outcome, error)
}

var modes = []mode{
	{"in_tx", retrysafe.Policy{Effects: retrysafe.InTx, Lapse: retrysafe.Rerun}, true, payInTx},
	{"do_tx", retrysafe.Policy{Effects: retrysafe.InTx, Lapse: retrysafe.Rerun}, true, payOneCommit},
	{"keyed", retrysafe.Policy{Effects: retrysafe.Keyed, Lapse: retrysafe.Rerun}, true, payKeyed},
	{"unprotected", retrysafe.Policy{}, false, payUnprotected},
}

func (m *mode) engine(s retrysafe.Store) (*retrysafe.Engine, error) {
	policy := m.policy
	policy.Lease, policy.Reconcile = Lease, time.Second
	return retrysafe.New(s, &retrysafe.Options{Policy: policy})
}

func paid(by string) retrysafe.Result {
	return retrysafe.Result{Status: 201, Body: []byte("paid by " + by)}
}

func payInTx(ctx context.Context, p *Place, e *retrysafe.Engine, f *Fuse) (retrysafe.Outcome, error) {
	return e.Do(ctx, Call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		result := paid(fmt.Sprintf("attempt %d", x.Attempt()))
		return result, p.InTx(ctx, x, txEffect, result, f)
	})
}

func payOneCommit(ctx context.Context, p *Place, e *retrysafe.Engine, f *Fuse) (retrysafe.Outcome, error) {
	return p.OneCommit(ctx, e, txEffect, paid(strconv.Itoa(os.Getpid())), f)
}

// payKeyed pays at a provider that knows the key, and answers the same.
func payKeyed(ctx context.Context, p *Place, e *retrysafe.Engine, f *Fuse) (retrysafe.Outcome, error) {
	return e.Do(ctx, Call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		_, err := p.DB.ExecContext(ctx, onceEffect, x.DownstreamKey("charge"))
		f.Pass()
		return paid("the provider"), err
	})
}

func payUnprotected(ctx context.Context, p *Place, e *retrysafe.Engine, f *Fuse) (retrysafe.Outcome, error) {
	return e.Do(ctx, Call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		_, err := p.DB.ExecContext(ctx, plainEffect, x.Record().Owner.String())
		f.Pass()
		return paid(fmt.Sprintf("attempt %d", x.Attempt())), err
	})
}

// IsChild reports whether this process is a child of [Sweep].
func IsChild() bool { return os.Getenv(envWhere) != "" }

// RunChild is all that a child does. It returns the exit code, if it returns.
func RunChild(open Open) int {
	if err := runChild(open); err != nil {
		_, _ = os.Stdout.WriteString(err.Error()) // its parent reads it
		return 3
	}
	return 0
}

func runChild(open Open) error {
	ctx := context.Background()
	p, err := open(ctx, os.Getenv(envWhere))
	if err != nil {
		return err
	}
	point, err := strconv.Atoi(os.Getenv(envPoint))
	if err != nil {
		return err
	}
	f := &Fuse{left: point}
	for i := range modes {
		m := &modes[i]
		if m.name != os.Getenv(envMode) {
			continue
		}
		e, err := m.engine(mined{p.Store, f})
		if err != nil {
			return err
		}
		out, err := m.pay(ctx, p, e, f)
		if err != nil {
			return err
		}
		if _, err := os.Stdout.WriteString(acknowledged + string(out.Body)); err != nil { // what a client has seen
			return err
		}
		f.Pass()
		return p.Close()
	}
	return fmt.Errorf("no mode %q", os.Getenv(envMode))
}

const acknowledged = "acknowledged "

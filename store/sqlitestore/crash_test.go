package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// The crash sweep: a child process runs one operation and is killed, with no
// warning, before and after each step it takes towards the database. Its parent
// then opens the same file, retries until the key is final, and counts effects.

const (
	crashFile  = "RETRYSAFE_CRASH_FILE"
	crashMode  = "RETRYSAFE_CRASH_MODE"
	crashPoint = "RETRYSAFE_CRASH_POINT"
	crashLease = 200 * time.Millisecond
)

func TestMain(m *testing.M) {
	if path := os.Getenv(crashFile); path != "" {
		point, _ := strconv.Atoi(os.Getenv(crashPoint))
		os.Exit(crashChild(path, os.Getenv(crashMode), point))
	}
	os.Exit(m.Run())
}

// fuse kills the process when it is passed for the n-th time.
type fuse struct{ left int }

func (f *fuse) pass() {
	if f.left--; f.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// mined is a store with a fuse before and after each step.
type mined struct {
	*sqlitestore.Store
	fuse *fuse
}

func around[T any](f *fuse, do func() (T, error)) (T, error) {
	f.pass()
	defer f.pass()
	return do()
}

func (m mined) Create(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return around(m.fuse, func() (retrysafe.Record, error) { return m.Store.Create(ctx, r) })
}

func (m mined) Swap(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return around(m.fuse, func() (retrysafe.Record, error) { return m.Store.Swap(ctx, r) })
}

var crashPolicies = map[string]retrysafe.Policy{
	"in_tx":       {Effects: retrysafe.InTx, Lapse: retrysafe.Rerun, Lease: crashLease, Reconcile: time.Second},
	"keyed":       {Effects: retrysafe.Keyed, Lapse: retrysafe.Rerun, Lease: crashLease, Reconcile: time.Second},
	"unprotected": {Lease: crashLease, Reconcile: time.Second},
}

var crashCall = retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: "key"}, Operation: "pay"}

// pay is the operation: its effect is a row, in the store's own transaction or
// at a provider that has its own.
func pay(ctx context.Context, s *sqlitestore.Store, x *retrysafe.Execution, mode string, f *fuse) (retrysafe.Result, error) {
	result := retrysafe.Result{Status: 201, Body: fmt.Appendf(nil, "paid by attempt %d", x.Attempt())}
	switch mode {
	case "in_tx":
		tx, err := s.DB().BeginTx(ctx, nil)
		if err != nil {
			return result, err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO effects (by) VALUES ('tx')`); err != nil {
			return result, errors.Join(err, tx.Rollback())
		}
		f.pass()
		if err := x.CompleteTx(ctx, s.Tx(tx), result); err != nil {
			return result, err
		}
		f.pass()
		err = tx.Commit()
		f.pass()
		return result, err
	case "keyed": // the provider knows the key, and answers the same
		_, err := s.DB().ExecContext(ctx, `INSERT INTO effects (by) VALUES (?) ON CONFLICT DO NOTHING`, x.DownstreamKey("charge"))
		f.pass()
		result.Body = []byte("paid")
		return result, err
	default:
		_, err := s.DB().ExecContext(ctx, `INSERT INTO effects (by) VALUES (?)`, x.Record().Owner.String())
		f.pass()
		return result, err
	}
}

func crashChild(path, mode string, point int) int {
	ctx := context.Background()
	s, err := sqlitestore.Open(ctx, path, nil)
	if err != nil {
		fmt.Println(err)
		return 3
	}
	f := &fuse{left: point}
	e, err := retrysafe.New(mined{s, f}, &retrysafe.Options{Policy: crashPolicies[mode]})
	if err != nil {
		fmt.Println(err)
		return 3
	}
	out, err := e.Do(ctx, crashCall, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		return pay(ctx, s, x, mode, f)
	})
	if err != nil {
		fmt.Println(err)
		return 3
	}
	fmt.Printf("acknowledged %s", out.Body) // what a client has seen
	f.pass()
	return 0
}

func TestCrashSweep(t *testing.T) {
	t.Parallel()
	for mode := range crashPolicies {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			point := 1
			for ; sweepOne(t, mode, point); point++ {
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
func sweepOne(t *testing.T, mode string, point int) (killed bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.db")
	s := open(t, path)
	_, err := s.DB().ExecContext(t.Context(), `CREATE TABLE effects (by TEXT NOT NULL PRIMARY KEY)`)
	if mode == "in_tx" {
		_, err = s.DB().ExecContext(t.Context(), `DROP TABLE effects; CREATE TABLE effects (id INTEGER PRIMARY KEY, by TEXT)`)
	}
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), crashFile+"="+path, crashMode+"="+mode, crashPoint+"="+strconv.Itoa(point))
	printed, err := child.Output()
	var exit *exec.ExitError
	if killed = errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled(); !killed && err != nil {
		t.Fatalf("point %d: the child failed by itself: %v, %s", point, err, printed)
	}
	shown, acknowledged := strings.CutPrefix(string(printed), "acknowledged ")

	e, err := retrysafe.New(s, &retrysafe.Options{Policy: crashPolicies[mode]})
	if err != nil {
		t.Fatal(err)
	}
	var final *retrysafe.Outcome
	unknown := false
	for deadline := time.Now().Add(crashLease + 5*time.Second); final == nil && !unknown; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("point %d: the key is not final after its lease and five seconds", point)
		}
		out, err := e.Do(t.Context(), crashCall, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			return pay(ctx, s, x, mode, &fuse{})
		})
		switch {
		case err == nil:
			final = &out
		case errors.Is(err, retrysafe.ErrUnknown):
			unknown = true
		case !errors.Is(err, retrysafe.ErrInFlight):
			t.Fatalf("point %d: %v", point, err)
		}
	}
	if acknowledged && (final == nil || string(final.Body) != shown) {
		t.Errorf("point %d: a client was shown %q, a retry gets %+v", point, shown, final)
	}
	var effects int
	if err := s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM effects`).Scan(&effects); err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	switch {
	case mode != "unprotected" && (effects != 1 || unknown):
		t.Errorf("point %d: %d effects, unknown %v; want exactly one, and an answer", point, effects, unknown)
	case effects > 1:
		t.Errorf("point %d: %d unprotected effects", point, effects)
	case !unknown && effects != 1:
		t.Errorf("point %d: an answer without an effect", point)
	}
	return killed
}

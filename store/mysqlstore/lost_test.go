package mysqlstore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// A till takes payments, one effect for each key, in every mode that promises that.
// Nothing keeps a second row of one key out of its ledger but the key.
type till struct {
	*mysqlstore.Store
	engines  map[string]*retrysafe.Engine
	provider *sync.Map // of mode keyed: downstream key → receipt
}

// The modes of a till.
const (
	keyed     = "keyed"
	inTx      = "in_tx"
	oneCommit = "do_tx"
)

var modes = []string{keyed, inTx, oneCommit}

// newTill opens a till over the store. Opts may hold all but effects and lapse.
func newTill(t testing.TB, s *mysqlstore.Store, opts retrysafe.Options) *till {
	t.Helper()
	opts.Policy.Effects, opts.Policy.Lapse = retrysafe.EffectsInTx, retrysafe.LapseRerun
	tx, err := retrysafe.New(s, &opts)
	must(t, err)
	opts.Policy.Effects = retrysafe.EffectsKeyed
	plain, err := retrysafe.New(s, &opts)
	must(t, err)
	exec(t, s.DB(), `CREATE TABLE IF NOT EXISTS ledger (name VARBINARY(255) NOT NULL, receipt VARBINARY(255) NOT NULL, KEY (name))`)
	b := &till{s, map[string]*retrysafe.Engine{keyed: plain, inTx: tx, oneCommit: tx}, new(sync.Map)}
	// A lapse proves a rollback once the operation was seen in a transaction.
	within(t, patience, "a payment completes in its transaction", func() bool {
		_, _, err := b.pay(t.Context(), inTx, "seen in a transaction "+rand.Text())
		return err == nil
	})
	return b
}

const enter = `INSERT INTO ledger (name, receipt) VALUES (?, ?)`

// pay asks for the payment under key. Mine is the receipt that this call would write.
func (b *till) pay(ctx context.Context, mode, key string) (mine string, out retrysafe.Outcome, err error) {
	mine = "receipt " + rand.Text()
	result := retrysafe.Result{Status: 201, Body: []byte(mine)}
	call, e := retrysafe.Call{Ref: refOf(key), Operation: mode}, b.engines[mode]
	switch mode {
	case keyed:
		out, err = e.Do(ctx, call, func(_ context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			first, _ := b.provider.LoadOrStore(x.DownstreamKey("charge"), mine)
			result.Body = []byte(first.(string))
			return result, nil
		})
	case inTx:
		out, err = e.Do(ctx, call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			return result, b.payInTx(ctx, x, result)
		})
	default:
		out, err = retrysafe.DoTx(ctx, e, b.Store, call, func(ctx context.Context, tx *sql.Tx) (retrysafe.Result, error) {
			_, err := tx.ExecContext(ctx, enter, key, mine)
			return result, err
		})
	}
	return mine, out, err
}

func (b *till) payInTx(ctx context.Context, x *retrysafe.Execution, r retrysafe.Result) error {
	// Not with ctx: if it ended, database/sql would roll back and say only that the
	// transaction has ended, which may also be a commit, and the outcome would be unknown.
	tx, err := b.DB().BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return retrysafe.NotExecuted(err)
	}
	if _, err := tx.ExecContext(ctx, enter, x.Ref().Key, string(r.Body)); err != nil {
		return retrysafe.NotExecuted(errors.Join(err, tx.Rollback())) // no commit was sent
	}
	if err := x.CompleteTx(ctx, b.Tx(tx), r); err != nil {
		return err
	}
	return tx.Commit()
}

// finish retries until the payment is final.
func (b *till) finish(t testing.TB, mode, key string) retrysafe.Outcome {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		_, out, err := b.pay(t.Context(), mode, key)
		switch {
		case err == nil:
			return out
		case errors.Is(err, retrysafe.ErrUnknown), errors.Is(err, retrysafe.ErrMismatch):
			r, _ := b.Load(t.Context(), refOf(key))
			t.Fatalf("%s: a retry of %s gets %v: %s", mode, key, err, r.Reason)
		case time.Now().After(deadline):
			t.Fatalf("%s: %s is not final: %v", mode, key, err)
		}
	}
}

// audit makes sure that the effect of a final payment is there once, and is the one that
// its answer tells of.
func (b *till) audit(t testing.TB, truth *sql.DB, mode, key string, out retrysafe.Outcome) {
	t.Helper()
	if mode == keyed { // the provider has one receipt for each key
		return
	}
	if got := receipts(t, truth, key); len(got) != 1 || got[0] != string(out.Body) {
		t.Errorf("%s: the answer of %s is %q and its effects are %q; want exactly that one", mode, key, out.Body, got)
	}
}

// receipts returns the effects of key, past any proxy and pool.
func receipts(t testing.TB, truth *sql.DB, key string) (all []string) {
	t.Helper()
	rows, err := truth.QueryContext(t.Context(), `SELECT receipt FROM ledger WHERE name = ?`, key)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var receipt string
		must(t, rows.Scan(&receipt))
		all = append(all, receipt)
	}
	must(t, rows.Err())
	return all
}

// patient lets a till wait, also for a reservation of its own that is on its way. No lease
// ends meanwhile, so a call that meets its own reservation and does not recognise it waits
// in vain.
var patient = retrysafe.Options{
	StoreTimeout: patience, SettleTimeout: patience,
	Policy: retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: patience / 2, Lease: 10 * patience},
}

// A connection breaks once, at one byte after another of all that an operation sends and
// receives. The call itself must find out what became of its steps: it never conflicts
// with itself, an answer is there for ever, and an error means that nothing happened.
func TestW14W32W43_ConnectionThatBreaksAtAnyByte(t *testing.T) {
	t.Parallel()
	points := int64(8)
	if *everyByte {
		points = 1 << 20
	}
	const batched, watched = "keyed as batches", "keyed beside a trigger"
	for _, mode := range append([]string{batched, watched}, modes...) {
		for at, fault := range []netfault.Fault{netfault.Cut, netfault.Reset, netfault.HalfClose} {
			t.Run(mode+"/"+fault.String(), func(t *testing.T) {
				t.Parallel()
				dsn := testservers.SharedMariaDB(t)
				truth := connect(t, dsn)
				proxy, err := netfault.New(addrOf(t, dsn))
				must(t, err)
				t.Cleanup(func() { _ = proxy.Close() })
				b := newTill(t, open(t, through(t, dsn, proxy.Addr()), nil), patient)
				switch mode {
				case batched:
					mode = keyed
					b.SendLoneStepsAsBatches()
				case watched:
					mode = keyed
					audit(t, dsn, "AFTER")
				}
				broken := 0
				for _, dir := range []netfault.Direction{netfault.ToServer, netfault.ToClient} {
					b.finish(t, mode, fmt.Sprint("warm up ", dir))
					proxy.Plan(nil)
					b.finish(t, mode, fmt.Sprint("measured ", dir))
					total := proxy.Seen(dir)
					stride := max(1, total/points)
					for n := stride * int64(at) / 3; n < total; n += stride {
						key := fmt.Sprint(dir, " ", n)
						proxy.Plan(atByte(dir, n, fault))
						b.broken(t, truth, mode, key)
						proxy.Plan(nil)
						b.finish(t, mode, key+" again") // its connections are whole again
						broken++
					}
				}
				t.Logf("broke at %d points", broken)
				if broken < 10 {
					t.Errorf("broke at %d points only", broken)
				}
			})
		}
	}
}

// atByte is a plan in which one connection fails, once: the one that the n-th byte in
// dir, of all connections together, is about to pass through.
func atByte(dir netfault.Direction, n int64, f netfault.Fault) netfault.Plan {
	passed := int64(0)
	return netfault.Once(func(c netfault.Chunk) netfault.Verdict {
		if c.Dir != dir {
			return netfault.Verdict{}
		}
		before := passed
		passed += int64(len(c.Data))
		if passed <= n {
			return netfault.Verdict{}
		}
		return netfault.Verdict{Fault: f, Pass: int(n - before)}
	})
}

// broken pays while one connection breaks, and makes sure that what the call was told is
// true.
func (b *till) broken(t *testing.T, truth *sql.DB, mode, key string) {
	t.Helper()
	mine, out, err := b.pay(t.Context(), mode, key)
	switch {
	case err == nil && string(out.Body) != mine:
		t.Errorf("%s: the first answer is %q, want the call's own", key, out.Body)
	case errors.Is(err, retrysafe.ErrInFlight):
		t.Errorf("%s: the call conflicts with itself: %v", key, err)
	case err != nil && mode == keyed:
		t.Errorf("%s: one lost connection, and the call gets %v", key, err)
	case err != nil && mode != keyed && len(receipts(t, truth, key)) != 0:
		t.Errorf("%s: the call was told %v, and its effect is there", key, err)
	}
	final := b.finish(t, mode, key)
	if err == nil && string(final.Body) != string(out.Body) {
		t.Errorf("%s: the answer was %q and is %q now", key, out.Body, final.Body)
	}
	b.audit(t, truth, mode, key, final)
}

// A store whose connections were broken closes without an error: nothing was lost with them.
func TestBrokenConnectionsAreClosedInOrder(t *testing.T) {
	t.Parallel()
	dsn := testservers.SharedMariaDB(t)
	proxy, err := netfault.New(addrOf(t, dsn))
	must(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	s, err := mysqlstore.Open(t.Context(), through(t, dsn, proxy.Addr()), nil)
	must(t, err)
	if proxy.Open() == 0 {
		t.Fatal("no connection is open")
	}
	proxy.Strike(netfault.Reset)
	must(t, s.Close())
}

package pgstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// patience is for a machine with much else to do: nothing that works takes as long.
const patience = 60 * time.Second

// A till takes payments, one effect for each key, in every mode that promises
// that. Nothing keeps a second row of one key out of its ledger but the key.
type till struct {
	*pgstore.Store
	engines  map[string]*retrysafe.Engine
	provider *sync.Map // of mode keyed: downstream key → receipt

	// In mode in_tx the commit is the caller's. It waits for it so long.
	hurry time.Duration
	// within, if set, runs in every operation, after its effect and before its
	// commit or settlement.
	within func()
}

// The modes of a till.
const (
	keyed     = "keyed"
	inTx      = "in_tx"
	oneCommit = "do_tx"
)

var modes = []string{keyed, inTx, oneCommit}

// newTill opens a till over the store. Opts may hold all but effects and lapse.
func newTill(t testing.TB, s *pgstore.Store, opts retrysafe.Options) *till {
	t.Helper()
	opts.Policy.Effects, opts.Policy.Lapse = retrysafe.EffectsInTx, retrysafe.LapseRerun
	tx, err := retrysafe.New(s, &opts)
	must(t, err)
	opts.Policy.Effects = retrysafe.EffectsKeyed
	plain, err := retrysafe.New(s, &opts)
	must(t, err)
	_, err = s.Pool().Exec(t.Context(), `CREATE TABLE IF NOT EXISTS ledger (key TEXT NOT NULL, receipt TEXT NOT NULL)`)
	must(t, err)
	b := &till{s, map[string]*retrysafe.Engine{keyed: plain, inTx: tx, oneCommit: tx}, new(sync.Map), patience, func() {}}
	// A lapse proves a rollback once the operation was seen in a transaction. A hasty
	// till on a busy machine may need more than one try, each with a key of its own.
	eventually(t, "a payment completes in its transaction", func() bool {
		_, _, err := b.pay(t.Context(), inTx, "seen in a transaction "+rand.Text())
		return err == nil
	})
	return b
}

const enter = `INSERT INTO ledger (key, receipt) VALUES ($1, $2)`

func refOf(key string) retrysafe.Ref { return retrysafe.Ref{Scope: "tenant", Key: key} }

// pay asks for the payment under key. Mine is the receipt that this call would
// write.
func (b *till) pay(ctx context.Context, mode, key string) (mine string, out retrysafe.Outcome, err error) {
	mine = "receipt " + rand.Text()
	result := retrysafe.Result{Status: 201, Body: []byte(mine)}
	call, e := retrysafe.Call{Ref: refOf(key), Operation: mode}, b.engines[mode]
	switch mode {
	case keyed:
		out, err = e.Do(ctx, call, func(_ context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			first, _ := b.provider.LoadOrStore(x.DownstreamKey("charge"), mine)
			result.Body = []byte(first.(string))
			b.within()
			return result, nil
		})
	case inTx:
		out, err = e.Do(ctx, call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			return result, b.payInTx(ctx, x, result)
		})
	default:
		out, err = retrysafe.DoTx(ctx, e, b.Store, call, func(ctx context.Context, tx pgx.Tx) (retrysafe.Result, error) {
			_, err := tx.Exec(ctx, enter, key, mine)
			b.within()
			return result, err
		})
	}
	return mine, out, err
}

func (b *till) payInTx(ctx context.Context, x *retrysafe.Execution, r retrysafe.Result) error {
	tx, err := b.Pool().Begin(ctx)
	if err != nil {
		return retrysafe.NotExecuted(err)
	}
	if _, err := tx.Exec(ctx, enter, x.Ref().Key, string(r.Body)); err != nil {
		return retrysafe.NotExecuted(errors.Join(err, tx.Rollback(ctx))) // no commit was sent
	}
	if err := x.CompleteTx(ctx, b.Tx(tx), r); err != nil {
		return err
	}
	b.within()
	ctx, cancel := context.WithTimeout(ctx, b.hurry)
	defer cancel()
	return tx.Commit(ctx)
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
			t.Fatalf("%s: a retry of %s gets %v", mode, key, err)
		case time.Now().After(deadline):
			t.Fatalf("%s: %s is not final: %v", mode, key, err)
		}
	}
}

// audit makes sure that the effect of a final payment is there once, and is the
// one that its answer tells of.
func (b *till) audit(t testing.TB, truth *pgx.Conn, mode, key string, out retrysafe.Outcome) {
	t.Helper()
	if mode == keyed { // the provider has one receipt for each key
		return
	}
	if got := receipts(t, truth, key); len(got) != 1 || got[0] != string(out.Body) {
		t.Errorf("%s: the answer of %s is %q and its effects are %q; want exactly that one", mode, key, out.Body, got)
	}
}

// receipts returns the effects of key, past any proxy and pool.
func receipts(t testing.TB, truth *pgx.Conn, key string) []string {
	t.Helper()
	rows, err := truth.Query(t.Context(), `SELECT receipt FROM ledger WHERE key = $1`, key)
	must(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return got
}

// behindProxy opens a store that reaches its database through a proxy, and a
// connection past it.
func behindProxy(t *testing.T, opts *pgstore.Options) (*netfault.Proxy, *pgstore.Store, *pgx.Conn) {
	t.Helper()
	address := testservers.Shared(t)
	parsed, err := url.Parse(address)
	must(t, err)
	proxy, err := netfault.New(parsed.Host)
	must(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	through, err := testservers.Via(address, proxy.Addr())
	must(t, err)
	through += "&pool_max_conns=1" // a connection that has been used before is used again
	return proxy, open(t, through, opts), connect(t, address)
}

// patient lets a till wait, also for a reservation of its own that is on its way:
// a lost connection is not a matter of time. No lease ends meanwhile, so a call that
// meets its own reservation and does not recognise it waits in vain.
var patient = retrysafe.Options{
	StoreTimeout: patience, SettleTimeout: patience,
	Policy: retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: patience / 2, Lease: 10 * patience},
}

// unhurried is for tests of what happens, on a machine that may be slow.
var unhurried = unhurriedBy(retrysafe.Policy{})

// unhurriedBy is unhurried by a policy.
func unhurriedBy(p retrysafe.Policy) *retrysafe.Options {
	return &retrysafe.Options{StoreTimeout: patience, SettleTimeout: patience, Policy: p}
}

var breaks = []netfault.Fault{netfault.Cut, netfault.Reset, netfault.HalfClose}

// A connection breaks once, at one byte after another of all that an operation
// sends and receives. The call itself must find out what became of its steps: it
// never conflicts with itself, an answer is there for ever, and an error means
// that nothing happened.
func TestW14W32W43_ConnectionThatBreaksAtAnyByte(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for at, fault := range breaks {
			t.Run(mode+"/"+fault.String(), func(t *testing.T) {
				t.Parallel()
				proxy, s, truth := behindProxy(t, nil)
				b := newTill(t, s, patient)
				points := 0
				for _, dir := range []netfault.Direction{netfault.ToServer, netfault.ToClient} {
					b.finish(t, mode, fmt.Sprint("warm up ", dir))
					proxy.Plan(nil)
					b.finish(t, mode, fmt.Sprint("measured ", dir))
					total := proxy.Seen(dir)
					stride := max(1, total/24)
					for n := stride * int64(at) / 3; n < total; n += stride {
						key := fmt.Sprint(dir, " ", n)
						proxy.Plan(atByte(dir, n, fault))
						b.broken(t, truth, mode, key, "")
						proxy.Plan(nil)
						b.finish(t, mode, key+" again") // its connections are whole again
						points++
					}
				}
				if points < 40 {
					t.Errorf("broke at %d points only", points)
				}
			})
		}
	}
}

// atByte is a plan in which one connection fails, once: the one that the n-th byte
// in dir, of all connections together, is about to pass through.
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

// broken pays while one connection breaks, and makes sure that what the call was
// told is true. Want says what that must be: "done", "undone", or nothing.
func (b *till) broken(t *testing.T, truth *pgx.Conn, mode, key, want string) {
	t.Helper()
	mine, out, err := b.pay(t.Context(), mode, key)
	switch {
	case err == nil && string(out.Body) != mine:
		t.Errorf("%s: the first answer is %q, want the call's own", key, out.Body)
	case err == nil && want == "undone":
		t.Errorf("%s: the request was lost, and yet there is an answer", key)
	case errors.Is(err, retrysafe.ErrInFlight):
		t.Errorf("%s: the call conflicts with itself: %v", key, err)
	case err != nil && (mode == keyed || want == "done"):
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

// The same at the bytes that matter most: requests that are lost, and replies of
// which nothing arrives, or all but the end.
func TestW14W32W43_LostRequestsAndReplies(t *testing.T) {
	t.Parallel()
	const ready = "Z\x00\x00\x00\x05I" // how a reply ends when no transaction is left
	request := func(f netfault.Fault) netfault.Plan { return netfault.Always(f, netfault.ToServer) }
	reply := func(f netfault.Fault) netfault.Plan { return netfault.Always(f, netfault.ToClient) }
	end := func(f netfault.Fault) netfault.Plan { return netfault.Before(netfault.ToClient, ready, f) }
	for _, c := range []struct {
		name, mode string
		late       bool // what comes after the operation, not before it
		plan       func(netfault.Fault) netfault.Plan
		want       string
	}{
		{"reservation", keyed, false, request, "done"},
		{"reply of the reservation", keyed, false, reply, "done"},
		{"end of that reply", keyed, false, end, "done"},
		{"settlement", keyed, true, request, "done"},
		{"reply of the settlement", keyed, true, reply, "done"},
		{"end of its reply", keyed, true, end, "done"},
		{"commit of a CompleteTx", inTx, true, request, "undone"},
		{"reply of that commit", inTx, true, reply, "done"},
		{"end of the commit's reply", inTx, true, end, "done"},
		{"CreateAndCommit", oneCommit, true, request, "undone"},
		{"reply of CreateAndCommit", oneCommit, true, reply, "done"},
		{"end of the reply of CreateAndCommit", oneCommit, true, end, "done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			proxy, s, truth := behindProxy(t, nil)
			b := newTill(t, s, patient)
			for _, fault := range breaks {
				key := fmt.Sprint(c.name, ", ", fault)
				for _, mode := range modes {
					b.finish(t, mode, key+": warm up "+mode)
				}
				var struck atomic.Bool
				plan := netfault.Once(c.plan(fault))
				set := func() {
					proxy.Plan(func(c netfault.Chunk) netfault.Verdict {
						v := plan(c)
						if v.Fault != netfault.None {
							struck.Store(true)
						}
						return v
					})
				}
				if b.within = set; !c.late {
					b.within = func() {}
					set()
				}
				b.broken(t, truth, c.mode, key, c.want)
				b.within = func() {}
				proxy.Plan(nil)
				if !struck.Load() {
					t.Errorf("%s: nothing was lost", key)
				}
			}
		})
	}
}

// A step ends with the deadline that its engine has set, where that is earlier than the
// store's own.
func TestStepEndsWithTheDeadlineOfItsEngine(t *testing.T) {
	t.Parallel()
	proxy, s, _ := behindProxy(t, &pgstore.Options{Timeout: patience})
	e, err := retrysafe.New(s, &retrysafe.Options{StoreTimeout: time.Second})
	must(t, err)
	answer := func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		return retrysafe.Result{Status: 201}, nil
	}
	for end := time.Now().Add(patience); ; {
		if _, err = e.Do(t.Context(), call("first"), answer); err == nil || time.Now().After(end) {
			break
		}
	}
	must(t, err)
	proxy.Plan(netfault.Always(netfault.Stall, netfault.ToClient))
	start := time.Now()
	if _, err := e.Do(t.Context(), call("first"), answer); err == nil {
		t.Error("a replay that the server did not send")
	}
	if took := time.Since(start); took > patience/2 {
		t.Errorf("the step went on for %v", took)
	}
	proxy.Strike(netfault.Reset) // the driver waits 15 s for a server that does not hang up
}

// A reply that does not come, or comes much too late, is a reply that was lost.
func TestW16_RepliesThatDoNotCome(t *testing.T) {
	t.Parallel()
	for _, fault := range []netfault.Fault{netfault.Discard, netfault.Stall} {
		for _, w := range windows {
			t.Run(fault.String()+"/"+w.key, func(t *testing.T) {
				t.Parallel()
				proxy, s, truth := behindProxy(t, &pgstore.Options{Timeout: time.Second})
				b := newTill(t, s, retrysafe.Options{
					StoreTimeout: 2 * time.Second, SettleTimeout: patience,
					// As in patient: its own first try may be on its way still.
					Policy: retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: patience / 2, Lease: patience},
				})
				b.hurry = time.Second
				for _, mode := range modes {
					b.finish(t, mode, "warm up "+mode)
				}
				b.within = func() { proxy.Plan(netfault.Once(netfault.Always(fault, netfault.ToClient))) }
				if w.early {
					b.within()
					b.within = func() {}
				}
				mine, out, err := b.pay(t.Context(), w.mode, w.key)
				switch {
				case err == nil && string(out.Body) != mine:
					t.Errorf("the first answer is %q, want the call's own", out.Body)
				case errors.Is(err, retrysafe.ErrInFlight):
					t.Errorf("the call conflicts with itself: %v", err)
				case retrysafe.IsNotExecuted(err) && len(receipts(t, truth, w.key)) != 0:
					t.Errorf("the call was told %v, and its effect is there", err)
				}
				b.within = func() {}
				must(t, proxy.Heal()) // what was stalled arrives now
				final := b.finish(t, w.mode, w.key)
				if err == nil && string(final.Body) != string(out.Body) {
					t.Errorf("the answer was %q and is %q now", out.Body, final.Body)
				}
				b.audit(t, truth, w.mode, w.key, final)
				proxy.Strike(netfault.Reset) // the driver waits 15 s for a server that does not hang up
			})
		}
	}
}

// Delays alone make no call fail.
func TestSlowNetwork(t *testing.T) {
	t.Parallel()
	proxy, s, truth := behindProxy(t, nil)
	b := newTill(t, s, patient)
	proxy.Plan(netfault.Slow(5 * time.Millisecond))
	for _, mode := range modes {
		b.broken(t, truth, mode, mode, "done")
	}
}

// Broken connections leave nothing behind: the store closes, the pool empties.
func TestCloseAfterBrokenConnections(t *testing.T) {
	t.Parallel()
	for _, fault := range []netfault.Fault{netfault.Cut, netfault.Reset, netfault.HalfClose, netfault.Discard, netfault.Stall} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			proxy, s, _ := behindProxy(t, &pgstore.Options{Timeout: time.Second})
			b := newTill(t, s, retrysafe.Options{StoreTimeout: time.Second, SettleTimeout: time.Second})
			b.hurry = time.Second
			for _, mode := range modes {
				b.finish(t, mode, mode)
			}
			proxy.Strike(fault)
			var calls sync.WaitGroup
			for i, mode := range modes {
				calls.Go(func() { _, _, _ = b.pay(t.Context(), mode, fmt.Sprint("broken ", i)) })
			}
			calls.Wait()
			proxy.Strike(netfault.Reset) // the driver waits 15 s for a server that does not hang up
			_ = s.Close()                // an error is no matter, hanging is
			// The pool counts a connection a moment longer than it waits for its end.
			eventually(t, "no connection of the pool is left", func() bool { return s.Pool().Stat().TotalConns() == 0 })
		})
	}
}

// poolOf makes a pool, as the caller of pgstore.New has one already.
func poolOf(t testing.TB, address string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), address)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// inTx starts a service over a SQLite store whose handlers run in its transactions,
// unless a change says otherwise.
func inTx(t *testing.T, tr transport, h func(context.Context, *bank, *order) (*payv1.ChargeResponse, error), change ...func(*config)) (*service, *bank, client) {
	t.Helper()
	b, err := openBank(t.Context(), filepath.Join(t.TempDir(), "keys.db"), "in_tx")
	must(t, err)
	t.Cleanup(func() { b.store.Close() })
	s, c := tr.start(t, append([]func(*config){func(c *config) { c.store, c.Tx = b.store, rpckey.InTx(b.store) },
		withHandler(func(ctx context.Context, o *order) (*payv1.ChargeResponse, error) { return h(ctx, b, o) })}, change...)...)
	return s, b, c
}

// byHand is for handlers that begin and commit transactions themselves.
func byHand(c *config) { c.Tx, c.policy.Effects = nil, retrysafe.EffectsInTx }

func (b *bank) has(t *testing.T, want int) {
	t.Helper()
	if got := b.effects(t); got != want {
		t.Fatalf("%d effects, want %d", got, want)
	}
}

// Effect and answer are one commit: one effect, also of many calls at once.
func TestInTxCommitsEffectAndAnswer(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, b, c := inTx(t, tr, func(ctx context.Context, b *bank, o *order) (*payv1.ChargeResponse, error) {
			return b.chargeInTx(ctx, o)
		})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for {
					o := c.call(t.Context(), pay(key, 1))
					if o.code == codes.OK {
						return
					}
					if o.info().GetMetadata()["code"] != "in-flight" {
						t.Errorf("got %s %q %v", o.code, o.text, o.details)
						return
					}
				}
			})
		}
		all.Wait()
		first := c.call(t.Context(), pay(key, 1))
		c.call(t.Context(), pay(key, 1)).same(t, first)
		b.has(t, 1)
		s.ranTimes(t, 1)
	})
}

// An error or a panic rolls the transaction back. An error that is an answer is stored,
// after any other the key is free.
func TestInTxRollsBackWithTheError(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		for name, c := range map[string]struct {
			fail  func() error
			code  codes.Code
			again bool
		}{
			"answer":       {func() error { return &fault{code: codes.FailedPrecondition, text: "no money"} }, codes.FailedPrecondition, false},
			"not executed": {func() error { return &fault{code: codes.ResourceExhausted, text: "later"} }, codes.ResourceExhausted, true},
			"failed":       {func() error { return &fault{code: codes.Internal, text: "a defect"} }, codes.Internal, true},
			"panic":        {func() error { panic("a defect") }, codes.Internal, true},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, b, client := inTx(t, tr, func(ctx context.Context, b *bank, o *order) (*payv1.ChargeResponse, error) {
					if _, err := b.chargeInTx(ctx, o); err != nil {
						return nil, err
					}
					return nil, c.fail()
				})
				first := client.call(t.Context(), pay(key, 1))
				if first.code != c.code {
					t.Fatalf("got %s %q", first.code, first.text)
				}
				b.has(t, 0)
				s.use(func(ctx context.Context, o *order) (*payv1.ChargeResponse, error) { return b.chargeInTx(ctx, o) })
				again := client.call(t.Context(), pay(key, 1))
				if c.again {
					if again.code != codes.OK || again.replayed() {
						t.Errorf("the retry got %s %q", again.code, again.text)
					}
					b.has(t, 1)
					return
				}
				again.same(t, first)
				b.has(t, 0)
			})
		}
	})
}

// A call without a key runs in a transaction too, where keys are optional.
func TestInTxWithoutAKey(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		_, b, c := inTx(t, tr, func(ctx context.Context, b *bank, o *order) (*payv1.ChargeResponse, error) {
			res, err := b.chargeInTx(ctx, o)
			if o.amount < 0 {
				return nil, &fault{code: codes.InvalidArgument, text: "negative"}
			}
			return res, err
		}, func(c *config) { c.Optional = true })
		for n := range 2 {
			if o := c.call(t.Context(), pay("", 1)); o.code != codes.OK || o.replayed() {
				t.Errorf("got %s %q", o.code, o.text)
			}
			if o := c.call(t.Context(), pay("", -1)); o.code != codes.InvalidArgument {
				t.Errorf("got %s %q", o.code, o.text)
			}
			b.has(t, n+1)
		}
	})
}

// A handler that asks for a transaction of another type gets an error that says what to
// do, and nothing is stored.
func TestTxOfAnotherType(t *testing.T) {
	t.Parallel()
	s, b, c := inTx(t, transports[0], func(ctx context.Context, _ *bank, _ *order) (*payv1.ChargeResponse, error) {
		_, err := rpckey.Tx[*memstore.Tx](ctx)
		return nil, err
	})
	if o := c.call(t.Context(), pay(key, 1)); o.code != codes.Unknown || !strings.Contains(o.text, "no transaction of type *memstore.Tx; set Options.Tx") {
		t.Errorf("got %s %q", o.code, o.text)
	}
	if _, err := b.store.Load(t.Context(), retrysafe.Ref{Scope: "acme", Key: key}); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("there is a record: %v", err)
	}
	s.ranTimes(t, 1)
}

// A success without a completion in a transaction is never stored as a success: its
// effects may have been committed, or not. The log says what to do.
func TestSuccessOutsideItsTransactionIsUnknown(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, b, c := inTx(t, tr, func(ctx context.Context, b *bank, _ *order) (*payv1.ChargeResponse, error) {
			_, err := b.store.DB().ExecContext(ctx, insertEffect, "an effect")
			return &payv1.ChargeResponse{ChargeId: "ch_1"}, err
		}, byHand)
		c.call(t.Context(), pay(key, 1)).refused(t, codes.Internal, "not-in-transaction")
		c.call(t.Context(), pay(key, 1)).refused(t, codes.Unknown, "outcome-unknown")
		b.has(t, 1)
		s.ranTimes(t, 1)
		if log := s.log.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "PayService/Charge") || !strings.Contains(log, "rpckey.Options.Tx") {
			t.Errorf("the log says %s", log)
		}
	})
}

// A completion whose transaction does not commit is no answer, whatever the handler
// returns. One that has committed is, whatever it returns.
func TestOnlyWhatIsCommittedIsTheAnswer(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		for name, c := range map[string]struct {
			end    func(context.Context, *sql.Tx) error
			answer func() (*payv1.ChargeResponse, error)
			commit bool
		}{
			"rolled back, says success": {func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
				func() (*payv1.ChargeResponse, error) { return &payv1.ChargeResponse{ChargeId: "ch_1"}, nil }, false},
			"rolled back, says not found": {func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
				func() (*payv1.ChargeResponse, error) { return nil, &fault{code: codes.NotFound, text: "no"} }, false},
			"left open, says success": {func(context.Context, *sql.Tx) error { return nil },
				func() (*payv1.ChargeResponse, error) { return &payv1.ChargeResponse{ChargeId: "ch_1"}, nil }, false},
			"committed, says something else": {func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
				func() (*payv1.ChargeResponse, error) { return &payv1.ChargeResponse{ChargeId: "another"}, nil }, true},
			"committed, says an error": {func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
				func() (*payv1.ChargeResponse, error) { return nil, errors.New("a defect") }, true},
			"committed, panics": {func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
				func() (*payv1.ChargeResponse, error) { panic("a defect") }, true},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, b, client := inTx(t, tr, func(ctx context.Context, b *bank, _ *order) (*payv1.ChargeResponse, error) {
					tx, err := b.store.DB().BeginTx(ctx, nil)
					if err != nil {
						return nil, err
					}
					if _, err := tx.ExecContext(ctx, insertEffect, "an effect"); err != nil {
						return nil, err
					}
					if err := rpckey.CompleteTx(ctx, b.store.Tx(tx), &payv1.ChargeResponse{ChargeId: "ch_1"}); err != nil {
						return nil, err
					}
					if err := c.end(ctx, tx); err != nil {
						return nil, err
					}
					return c.answer()
				}, byHand)
				got := client.call(t.Context(), pay(key, 1))
				if c.commit {
					got.is(t, 1, false)
					client.call(t.Context(), pay(key, 1)).is(t, 1, true)
					b.has(t, 1)
					s.ranTimes(t, 1)
					return
				}
				got.refused(t, codes.Unavailable, "attempt-failed")
				b.has(t, 0)
				if log := s.log.String(); strings.HasSuffix(name, "says success") != strings.Contains(log, "did not commit") {
					t.Errorf("the log says %s", log)
				}
			})
		}
	})
}

// A store that cannot begin a transaction is proof that nothing happened. The client
// gets none of the store's words.
func TestInTxThatCannotBegin(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, b, c := inTx(t, tr, func(ctx context.Context, b *bank, o *order) (*payv1.ChargeResponse, error) {
			return b.chargeInTx(ctx, o)
		},
			func(c *config) { c.Optional = true })
		must(t, b.store.Close())
		for _, k := range []string{key, ""} {
			o := c.call(t.Context(), pay(k, 1))
			o.refused(t, codes.Unavailable, "store-unavailable")
			if strings.Contains(o.text, "closed") || strings.Contains(o.text, "sql") {
				t.Errorf("the client got %q", o.text)
			}
		}
		s.ranTimes(t, 0)
	})
}

// commitTx commits the transaction that the handler runs in, which it must not do.
func commitTx(ctx context.Context) error {
	tx, err := rpckey.Tx[*sql.Tx](ctx)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// The transactions may be of another store than the engine's records. What was committed is
// the answer of a retry.
func TestInTxOfAnotherStore(t *testing.T) {
	each(t, func(t *testing.T, tr transport) {
		s, b, c := inTx(t, tr, func(ctx context.Context, b *bank, o *order) (*payv1.ChargeResponse, error) {
			return b.chargeInTx(ctx, o)
		}, func(c *config) { c.store = memstore.New(nil) })
		c.call(t.Context(), pay(key, 1)).refused(t, codes.Unavailable, "outcome-pending")
		if !strings.Contains(s.log.String(), "give rpckey.InTx the store that the guard's engine was made with") {
			t.Errorf("the log is %s", s.log.String())
		}
		if again := c.call(t.Context(), pay(key, 1)); again.code != codes.OK {
			t.Errorf("a retry got %s %q %v", again.code, again.text, again.details)
		}
		b.has(t, 1)
		s.ranTimes(t, 1)
	})
}

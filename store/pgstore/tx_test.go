package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// bank is a store with an engine and a table that operations book in.
type bank struct {
	*retrysafe.Engine
	store *pgstore.Store
	conn  *pgx.Conn
}

func newBank(t *testing.T, url string, p retrysafe.Policy) *bank {
	t.Helper()
	b := &bank{store: open(t, url, nil), conn: connect(t, url)}
	var err error
	b.Engine, err = retrysafe.New(b.store, unhurriedBy(p))
	must(t, err)
	exec(t, b.conn, `CREATE TABLE IF NOT EXISTS effects (key text NOT NULL, by text NOT NULL DEFAULT '')`)
	return b
}

var txPolicy = retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun}

func call(key string) retrysafe.Call {
	return retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: key}, Operation: "POST /payments"}
}

const book = `INSERT INTO effects (key, by) VALUES ($1, $2)`

// do books under the key, in a transaction of its own that it completes in.
func (b *bank) do(ctx context.Context, key string) (retrysafe.Outcome, error) {
	return b.Do(ctx, call(key), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		tx, err := b.store.Pool().Begin(ctx)
		if err != nil {
			return retrysafe.Result{}, err
		}
		if _, err := tx.Exec(ctx, book, key, "do"); err != nil {
			return retrysafe.Result{}, errors.Join(err, tx.Rollback(ctx))
		}
		if err := x.CompleteTx(ctx, b.store.Tx(tx), retrysafe.Result{Status: 201, Body: []byte("booked " + key)}); err != nil {
			return retrysafe.Result{}, err
		}
		return retrysafe.Result{}, tx.Commit(ctx)
	})
}

// doTx books under the key in one commit with the answer, after what else fn does.
func (b *bank) doTx(ctx context.Context, key string, fn func(context.Context, pgx.Tx) error) (retrysafe.Outcome, error) {
	return retrysafe.DoTx(ctx, b.Engine, b.store, call(key), func(ctx context.Context, tx pgx.Tx) (retrysafe.Result, error) {
		if fn != nil {
			if err := fn(ctx, tx); err != nil {
				return retrysafe.Result{}, err
			}
		}
		_, err := tx.Exec(ctx, book, key, "doTx")
		return retrysafe.Result{Status: 201, Body: []byte("booked " + key)}, err
	})
}

// booked returns what was booked under the key, in order.
func (b *bank) booked(t *testing.T, key string) string {
	t.Helper()
	return one[string](t, b.conn, `SELECT coalesce(string_agg(by, ', ' ORDER BY by), '') FROM effects WHERE key = $1`, key)
}

// isBooked reports whether there is an effect of a key. It may be called concurrently.
func (b *bank) isBooked(t *testing.T, key string) (is bool) {
	t.Helper()
	if err := b.store.Pool().QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM effects WHERE key = $1)`, key).Scan(&is); err != nil {
		t.Error(err)
	}
	return is
}

// While a transaction is open every other key goes on as ever, and its own is
// refused at once.
func TestOpenTransactionDelaysNoOtherKey(t *testing.T) {
	t.Parallel()
	const others = 200
	// hold opens a transaction on the key "held" and keeps it open until the
	// release is closed. It says when it is open.
	for name, hold := range map[string]func(b *bank, open chan<- struct{}, release <-chan struct{}) error{
		"CompleteTx": func(b *bank, open chan<- struct{}, release <-chan struct{}) error {
			return second(b.Do(t.Context(), call("held"), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
				tx, err := b.store.Pool().Begin(ctx)
				if err != nil {
					return retrysafe.Result{}, err
				}
				if _, err := tx.Exec(ctx, book, "held", "do"); err != nil {
					return retrysafe.Result{}, err
				}
				if err := x.CompleteTx(ctx, b.store.Tx(tx), retrysafe.Result{Status: 201}); err != nil {
					return retrysafe.Result{}, err
				}
				close(open)
				<-release
				return retrysafe.Result{}, tx.Commit(ctx)
			}))
		},
		"DoTx": func(b *bank, open chan<- struct{}, release <-chan struct{}) error {
			return second(b.doTx(t.Context(), "held", func(context.Context, pgx.Tx) error {
				close(open)
				<-release
				return nil
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, testservers.Shared(t), txPolicy)
			for i := range others {
				must(t, second(b.doTx(t.Context(), fmt.Sprint("old ", i), nil)))
			}
			isOpen, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() { ended <- hold(b, isOpen, release) }()
			<-isOpen

			var wg sync.WaitGroup
			for i := range others {
				wg.Go(func() {
					if out, err := b.do(t.Context(), fmt.Sprint("new ", i)); err != nil || out.Replayed {
						t.Errorf("a fresh key: %+v, %v", out, err)
					}
				})
				wg.Go(func() {
					if out, err := b.do(t.Context(), fmt.Sprint("old ", i)); err != nil || !out.Replayed {
						t.Errorf("a replay: %+v, %v", out, err)
					}
				})
				if i%20 == 0 {
					wg.Go(func() {
						if _, err := b.do(t.Context(), "held"); !errors.Is(err, retrysafe.ErrInFlight) {
							t.Errorf("Do of the held key: %v", err)
						}
					})
					wg.Go(func() {
						if _, err := b.doTx(t.Context(), "held", nil); !errors.Is(err, retrysafe.ErrInFlight) {
							t.Errorf("DoTx of the held key: %v", err)
						}
					})
					wg.Go(func() { b.meetHeld(t) })
				}
			}
			wg.Wait()
			select {
			case err := <-ended:
				t.Fatalf("the transaction did not stay open: %v", err)
			default:
			}
			close(release)
			if err := <-ended; err != nil {
				t.Errorf("the transaction that was held: %v", err)
			}
			if out, err := b.do(t.Context(), "held"); err != nil || !out.Replayed || strings.Contains(b.booked(t, "held"), ",") {
				t.Errorf("afterwards: %+v, %v, booked %s", out, err, b.booked(t, "held"))
			}
		})
	}
}

// meetHeld takes plain steps at the held key. They are refused, not waited for.
func (b *bank) meetHeld(t *testing.T) {
	t.Helper()
	switch got, err := b.store.Load(t.Context(), call("held").Ref); {
	case errors.Is(err, retrysafe.ErrNotFound): // it has no visible record
		if _, err := b.store.Create(t.Context(), fresh("held")); !errors.Is(err, retrysafe.ErrBusy) {
			t.Errorf("Create of the held key: %v", err)
		}
	case err == nil:
		if _, err := b.store.Swap(t.Context(), done(got, "a zombie's")); !errors.Is(err, retrysafe.ErrBusy) {
			t.Errorf("Swap of the held key: %v", err)
		}
	default:
		t.Error(err)
	}
}

// A function given to DoTx may use savepoints; what it takes back is gone, the
// rest and the answer are there.
func TestSavepointsInDoTx(t *testing.T) {
	t.Parallel()
	b := newBank(t, testservers.Shared(t), txPolicy)
	nest := func(ctx context.Context, tx pgx.Tx, key, by string, keep bool) error {
		nested, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = nested.Rollback(ctx) }() // the usual deferred rollback
		if _, err := nested.Exec(ctx, book, key, by); err != nil {
			return err
		}
		inner, err := nested.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := inner.Exec(ctx, `SELECT 1 / 0`); err == nil {
			t.Error("that was to fail")
		}
		if err := inner.Rollback(ctx); err != nil || !keep {
			return err
		}
		return nested.Commit(ctx)
	}
	out, err := b.doTx(t.Context(), "k", func(ctx context.Context, tx pgx.Tx) error {
		for _, query := range []string{`SAVEPOINT mine`, `ROLLBACK  TO mine`, `ROLLBACK TRANSACTION TO SAVEPOINT mine`} {
			must(t, second(tx.Exec(ctx, query)))
		}
		return errors.Join(nest(ctx, tx, "k", "kept", true), nest(ctx, tx, "k", "taken back", false), nest(ctx, tx, "k", "kept too", true))
	})
	if err != nil || b.booked(t, "k") != "doTx, kept, kept too" {
		t.Errorf("%+v, %v; booked %q", out, err, b.booked(t, "k"))
	}
	if out, err := b.doTx(t.Context(), "k", nil); err != nil || !out.Replayed {
		t.Errorf("a retry: %+v, %v", out, err)
	}
}

// The swap of a record that is there is not committed either by another transaction than the
// one that has taken its key.
func TestSwapOfATransactionThatWasEndedIsNotCommitted(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s := open(t, url, nil)
	for _, end := range []string{"COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "COMMIT; BEGIN"} {
		ref := retrysafe.Ref{Scope: "tenant", Key: end}
		must(t, second(s.Create(t.Context(), fresh(end))))
		tx, own, err := s.BeginTx(t.Context())
		must(t, err)
		r, err := tx.Reserve(t.Context(), ref)
		must(t, err)
		must(t, second(own.Conn().Exec(t.Context(), end)))
		must(t, second(tx.Swap(t.Context(), done(r, "answer"))))
		if err := tx.Commit(t.Context()); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s: Commit = %v, want that the transaction has ended", end, err)
		}
		if got, err := s.Load(t.Context(), ref); err != nil || got.State != retrysafe.StateInProgress {
			t.Errorf("%s: the record is %s, %v", end, got.State, err)
		}
	}
}

// A function that ends the transaction behind the store's back has broken the
// rule; no answer is stored for what was rolled back.
func TestTransactionThatWasEndedTakesNoAnswer(t *testing.T) {
	t.Parallel()
	b := newBank(t, testservers.Shared(t), txPolicy)
	for name, end := range map[string]func(context.Context, pgx.Tx) error{
		"by SQL":         func(ctx context.Context, tx pgx.Tx) error { return second(tx.Exec(ctx, "ROLLBACK")) },
		"by another one": func(ctx context.Context, tx pgx.Tx) error { return second(tx.Exec(ctx, "commit and chain")) },
		"by another one, undone": func(ctx context.Context, tx pgx.Tx) error {
			return second(tx.Exec(ctx, "ROLLBACK\nAND CHAIN"))
		},
		"by another one, after an error": func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(second(tx.Exec(ctx, "COMMIT AND CHAIN")), errors.New("declined"))
		},
		"by another one, in a batch": func(ctx context.Context, tx pgx.Tx) error {
			b := new(pgx.Batch)
			b.Queue("ROLLBACK AND CHAIN")
			return tx.SendBatch(ctx, b).Close()
		},
		"by another one, in a query": func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "COMMIT AND CHAIN")
			if err == nil {
				rows.Close()
				err = rows.Err()
			}
			return err
		},
		"by another one, by the driver": func(ctx context.Context, tx pgx.Tx) error {
			return second(tx.Conn().Exec(ctx, "COMMIT AND CHAIN"))
		},
		"by another one, of many": func(ctx context.Context, tx pgx.Tx) error {
			return second(tx.Exec(ctx, "COMMIT AND CHAIN; SELECT 1"))
		},
		"by another one, begun": func(ctx context.Context, tx pgx.Tx) error {
			return second(tx.Exec(ctx, "COMMIT; BEGIN"))
		},
		"by another one, with a comment": func(ctx context.Context, tx pgx.Tx) error {
			return second(tx.Exec(ctx, "ROLLBACK AND CHAIN /* back to the start */"))
		},
		"by another one, in a batch, after an error": func(ctx context.Context, tx pgx.Tx) error {
			b := new(pgx.Batch)
			b.Queue("COMMIT AND CHAIN")
			return errors.Join(tx.SendBatch(ctx, b).Close(), errors.New("declined"))
		},
		"by the driver": func(ctx context.Context, tx pgx.Tx) error { return second(tx.Conn().Exec(ctx, "ROLLBACK")) },
		"by Rollback":   func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		"by a mistake that was ignored": func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "SELECT 1 / 0")
			return nil
		},
	} {
		_, err := retrysafe.DoTx(t.Context(), b.Engine, b.store, call(name), func(ctx context.Context, tx pgx.Tx) (retrysafe.Result, error) {
			must(t, second(tx.Exec(ctx, book, name, "first")))
			return retrysafe.Result{Status: 201}, end(ctx, tx)
		})
		got, loaded := b.store.Load(t.Context(), call(name).Ref)
		if name == "by SQL" || name == "by the driver" || strings.HasPrefix(name, "by another one") { // it may have been a commit
			if !errors.Is(err, retrysafe.ErrTxDone) || got.State != retrysafe.StateUnknown {
				t.Errorf("%s: DoTx = %v, stored is %s, %v; want it unknown", name, err, got.State, loaded)
			}
			if _, err := b.doTx(t.Context(), name, nil); !errors.Is(err, retrysafe.ErrUnknown) {
				t.Errorf("%s, retried: %v", name, err)
			}
			continue
		}
		if err == nil || !errors.Is(loaded, retrysafe.ErrNotFound) || b.booked(t, name) != "" {
			t.Errorf("%s: DoTx = %v, stored is %s, %v, booked %q; the effect is undone, so there is no answer", name, err, got.State, loaded, b.booked(t, name))
		}
		if out, err := b.doTx(t.Context(), name, nil); err != nil || out.Replayed || b.booked(t, name) != "doTx" {
			t.Errorf("%s, retried: %+v, %v, booked %q", name, out, err, b.booked(t, name))
		}
	}

	stored, err := b.store.Create(t.Context(), fresh("joined"))
	must(t, err)
	tx, err := b.store.Pool().Begin(t.Context())
	must(t, err)
	must(t, second(tx.Exec(t.Context(), "ROLLBACK")))
	if _, err := b.store.Tx(tx).Swap(t.Context(), done(stored, "answer")); err == nil {
		t.Error("a transaction of the caller's that has ended takes the answer")
	}
	if got, err := b.store.Load(t.Context(), stored.Ref); err != nil || got.State != retrysafe.StateInProgress {
		t.Errorf("stored is %s, %v", got.State, err)
	}
}

// PostgreSQL answers the commit of a transaction that has failed with a success, and rolls
// back. That is an error here.
func TestCommitOfAFailedTransactionIsAnError(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	tx, db, err := s.BeginTx(t.Context())
	must(t, err)
	if _, err := db.Exec(t.Context(), `SELECT 1/0`); err == nil {
		t.Fatal("a division by zero succeeds")
	}
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("the commit of a transaction that has failed is reported as a success")
	}
}

// A commit that the database refuses says why, and nothing is stored.
func TestRefusedCommitSaysWhy(t *testing.T) {
	t.Parallel()
	b := newBank(t, testservers.Shared(t), txPolicy)
	exec(t, b.conn, `CREATE TABLE once (n int, CONSTRAINT only_once UNIQUE (n) DEFERRABLE INITIALLY DEFERRED)`)
	exec(t, b.conn, `INSERT INTO once VALUES (1)`)
	for range 2 {
		_, err := b.doTx(t.Context(), "k", func(ctx context.Context, tx pgx.Tx) error { return second(tx.Exec(ctx, `INSERT INTO once VALUES (1)`)) })
		if err == nil || !strings.Contains(err.Error(), "only_once") || b.booked(t, "k") != "" {
			t.Errorf("DoTx = %v, booked %q; want the constraint named, and nothing booked", err, b.booked(t, "k"))
		}
	}
	exec(t, b.conn, `DELETE FROM once`)
	if out, err := b.doTx(t.Context(), "k", func(ctx context.Context, tx pgx.Tx) error { return second(tx.Exec(ctx, `INSERT INTO once VALUES (1)`)) }); err != nil || out.Replayed {
		t.Errorf("once it can: %+v, %v", out, err)
	}
}

// TestW20_TransactionOfAnyIsolationLosesSafely: a caller's transaction that looks
// at an old snapshot is refused, by whatever error, and leaves no second effect.
func TestW20_TransactionOfAnyIsolationLosesSafely(t *testing.T) {
	t.Parallel()
	b := newBank(t, testservers.Shared(t), txPolicy)
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		// begin opens a transaction with a snapshot of now and an effect.
		begin := func(key string) pgx.Tx {
			tx, err := b.store.Pool().BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			must(t, err)
			must(t, second(tx.Exec(t.Context(), book, key, "late")))
			return tx
		}
		settled := func(what, key string, joined *pgstore.Tx, err error) {
			t.Helper()
			if err == nil || joined.Commit(t.Context()) == nil || b.booked(t, key) != "" {
				t.Errorf("%s, %s: %v, booked %q; want it refused", level, what, err, b.booked(t, key))
			}
		}
		key := string(level)

		// The record moves on under a transaction that is to complete it.
		stored, err := b.store.Create(t.Context(), fresh(key+" swap"))
		must(t, err)
		tx := begin(key + " swap")
		must(t, second(b.store.Swap(t.Context(), beat(stored, time.Minute))))
		joined := b.store.Tx(tx)
		_, err = joined.Swap(t.Context(), done(stored, "late"))
		settled("Swap", key+" swap", joined, err)

		// Another caller creates the key after the transaction has looked.
		tx = begin(key + " create")
		joined = b.store.Tx(tx)
		if _, err := joined.Reserve(t.Context(), fresh(key+" looked").Ref); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("%s, Reserve of a free key: %v", level, err)
		}
		must(t, second(b.store.Create(t.Context(), done(fresh(key+" create").Record, "the first"))))
		_, err = joined.Create(t.Context(), done(fresh(key+" create").Record, "late"))
		settled("Create", key+" create", joined, err)
		if got, err := b.store.Load(t.Context(), call(key+" create").Ref); err != nil || string(got.Result.Body) != "the first" {
			t.Errorf("%s: stored is %+v, %v", level, got, err)
		}

		// Through the engine: the calls that lose get an error, and one effect is left.
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					_, err := b.Do(t.Context(), call(key+" race"), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
						tx, err := b.store.Pool().BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
						if err != nil {
							return retrysafe.Result{}, err
						}
						defer func() { _ = tx.Rollback(ctx) }()
						if _, err := tx.Exec(ctx, book, key+" race", "one"); err != nil {
							return retrysafe.Result{}, err
						}
						if err := x.CompleteTx(ctx, b.store.Tx(tx), retrysafe.Result{Status: 201}); err != nil {
							return retrysafe.Result{}, err
						}
						return retrysafe.Result{}, tx.Commit(ctx)
					})
					switch {
					case err == nil:
						return
					case !errors.Is(err, retrysafe.ErrInFlight):
						t.Errorf("%s: %v", level, err)
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		if got := b.booked(t, key+" race"); got != "one" {
			t.Errorf("%s: booked %q", level, got)
		}
	}
}

// Any number of calls that wait for one key need two connections at most: one to
// ask for it, one to look.
func TestWaitersShareTwoConnections(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	owner := newBank(t, url, retrysafe.Policy{})
	config, err := pgxpool.ParseConfig(url + "&application_name=waiters")
	must(t, err)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	defer pool.Close()
	s, err := pgstore.New(t.Context(), pool, nil)
	must(t, err)
	defer s.Close()
	s.SetOverlap(false)
	pool.Reset() // what New has asked with is not the waiters'
	const mine = `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiters'`
	eventually(t, "its connection is gone", func() bool { return one[int](t, owner.conn, mine) == 0 })
	e, err := retrysafe.New(s, unhurriedBy(retrysafe.Policy{InFlight: retrysafe.InFlightWait, Wait: patience}))
	must(t, err)

	release, ran := make(chan struct{}), make(chan error, 1)
	isOpen := make(chan struct{})
	go func() {
		ran <- second(owner.Do(t.Context(), call("k"), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			close(isOpen)
			<-release
			return retrysafe.Result{Status: 201, Body: []byte("the answer")}, nil
		}))
	}()
	<-isOpen
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			out, err := e.Do(t.Context(), call("k"), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
				t.Error("a waiter ran it")
				return retrysafe.Result{}, nil
			})
			if err != nil || string(out.Body) != "the answer" {
				t.Errorf("a waiter got %+v, %v", out, err)
			}
		})
	}
	eventually(t, "they look", func() bool { return one[int](t, owner.conn, mine) > 0 })
	for range 100 {
		if n := one[int](t, owner.conn, mine); n > 2 {
			t.Fatalf("64 waiters have %d connections", n)
		}
	}
	close(release)
	must(t, <-ran)
	wg.Wait()
	if n := one[int](t, owner.conn, mine); n > 2 {
		t.Errorf("64 waiters have %d connections", n)
	}
}

// A transaction gives its connection back to the pool however it ends.
func TestTransactionsGiveTheirConnectionsBack(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	ended, end := context.WithCancel(t.Context())
	end()
	for name, finish := range map[string]func(retrysafe.Tx, pgx.Tx){
		"commit":            func(tx retrysafe.Tx, _ pgx.Tx) { _ = tx.Commit(t.Context()) },
		"commit too late":   func(tx retrysafe.Tx, _ pgx.Tx) { _ = tx.Commit(ended) },
		"rollback":          func(tx retrysafe.Tx, _ pgx.Tx) { _ = tx.Rollback(t.Context()) },
		"rollback too late": func(tx retrysafe.Tx, _ pgx.Tx) { _ = tx.Rollback(ended) },
		"create and commit too late": func(tx retrysafe.Tx, _ pgx.Tx) {
			_, _ = tx.(retrysafe.CreateCommitter).CreateAndCommit(ended, fresh("never-created"))
		},
		"ended by the caller's statement": func(tx retrysafe.Tx, own pgx.Tx) {
			_, _ = own.Exec(t.Context(), "COMMIT")
			_ = tx.Commit(t.Context())
		},
		"a step that is refused":    func(tx retrysafe.Tx, _ pgx.Tx) { _, _ = tx.Swap(t.Context(), fresh("absent")) },
		"a message that is refused": func(tx retrysafe.Tx, _ pgx.Tx) { _ = tx.(outbox.Enqueuer).Enqueue(t.Context(), outbox.Message{}) },
		"a Reserve too late":        func(tx retrysafe.Tx, _ pgx.Tx) { _, _ = tx.Reserve(ended, call("k").Ref) },
		"a first Reserve too late":  func(tx retrysafe.Tx, _ pgx.Tx) { _, _ = tx.Reserve(ended, call("k").Ref) },
		"a first Take too late":     func(tx retrysafe.Tx, _ pgx.Tx) { _, _ = tx.(retrysafe.Taker).Take(ended, call("k").Ref) },
		"a first commit":            func(tx retrysafe.Tx, _ pgx.Tx) { _ = tx.Commit(t.Context()) },
		"a first rollback":          func(tx retrysafe.Tx, _ pgx.Tx) { _ = tx.Rollback(t.Context()) },
	} {
		for range 3 {
			tx, own, err := s.BeginTx(t.Context())
			must(t, err)
			if !strings.HasPrefix(name, "a first ") {
				must(t, second(own.Exec(t.Context(), "SELECT 1")))
			}
			finish(tx, own)
		}
		eventually(t, "no connection is taken after "+name, func() bool { return s.Pool().Stat().AcquiredConns() == 0 })
	}
}

// A commit has a deadline on its connection, which the next one to use it does not meet.
func TestConnectionsHaveNoDeadlineAfterTheirCommit(t *testing.T) {
	t.Parallel()
	b := newBank(t, testservers.Shared(t), txPolicy)
	limit := time.Second
	for n := 0; ; n++ { // with a longer one, if the machine is too busy for it
		var err error
		b.Engine, err = retrysafe.New(b.store, &retrysafe.Options{Policy: txPolicy, StoreTimeout: limit})
		must(t, err)
		if _, err = b.doTx(t.Context(), fmt.Sprint(n), nil); err == nil {
			break
		}
		if limit *= 2; limit > time.Minute {
			t.Fatal(err)
		}
	}
	time.Sleep(limit)
	all := b.store.Pool().AcquireAllIdle(t.Context())
	if len(all) == 0 {
		t.Error("no connection has gone back to the pool")
	}
	for _, conn := range all {
		if err := conn.Ping(t.Context()); err != nil {
			t.Errorf("a connection after its commit: %v", err)
		}
		conn.Release()
	}
}

// Whatever comes first in a transaction that the store begins, of all that pgx has, is in
// the transaction: it goes with a rollback, it comes with a commit, and after either no
// more is taken.
func TestAnyFirstStatementIsInTheTransaction(t *testing.T) {
	t.Parallel()
	b := newBank(t, testservers.Shared(t), txPolicy)
	ctx := t.Context()
	for name, use := range map[string]func(tx pgx.Tx, key string) error{
		"Exec": func(tx pgx.Tx, key string) error { return second(tx.Exec(ctx, book, key, "x")) },
		"Query": func(tx pgx.Tx, key string) error {
			rows, err := tx.Query(ctx, book, key, "x")
			if err != nil {
				return err
			}
			rows.Close()
			return rows.Err()
		},
		"QueryRow": func(tx pgx.Tx, key string) error {
			var by string
			return tx.QueryRow(ctx, book+` RETURNING by`, key, "x").Scan(&by)
		},
		"SendBatch": func(tx pgx.Tx, key string) error {
			var all pgx.Batch
			all.Queue(book, key, "x")
			results := tx.SendBatch(ctx, &all)
			return errors.Join(second(results.Exec()), results.Close())
		},
		"CopyFrom": func(tx pgx.Tx, key string) error {
			return second(tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"key", "by"}, pgx.CopyFromRows([][]any{{key, "x"}})))
		},
		"Prepare": func(tx pgx.Tx, key string) error {
			if _, err := tx.Prepare(ctx, "by_hand", book); err != nil {
				return err
			}
			return second(tx.Exec(ctx, "by_hand", key, "x"))
		},
		"Begin": func(tx pgx.Tx, key string) error {
			nested, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			return errors.Join(second(nested.Exec(ctx, book, key, "x")), nested.Commit(ctx))
		},
	} {
		for _, commits := range []bool{false, true} {
			key, want := fmt.Sprint(name, commits), ""
			tx, db, err := b.store.BeginTx(ctx)
			must(t, err)
			if err := use(db, key); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			// The key is taken all the same.
			if _, err := tx.(retrysafe.Taker).Take(ctx, call(key).Ref); !errors.Is(err, retrysafe.ErrNotFound) {
				t.Errorf("Take after %s = %v", name, err)
			}
			if _, err := b.store.Create(ctx, fresh(key)); !errors.Is(err, retrysafe.ErrBusy) {
				t.Errorf("Create of a key that was taken after %s = %v", name, err)
			}
			if commits {
				want = "x"
				must(t, tx.Commit(ctx))
			} else {
				must(t, tx.Rollback(ctx))
			}
			if err := use(db, key); !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("%s after the end = %v", name, err)
			}
			if got := b.booked(t, key); got != want {
				t.Errorf("%s: booked %q, want %q", name, got, want)
			}
		}
	}
	tx, db, err := b.store.BeginTx(ctx)
	must(t, err)
	objects := db.LargeObjects()
	must(t, second(objects.Create(ctx, 0)))
	must(t, tx.Rollback(ctx))
	if n := one[int](t, b.conn, `SELECT count(*) FROM pg_largeobject_metadata`); n != 0 {
		t.Errorf("a large object is left")
	}
}

// A transaction on a pool of the caller's that outlives its store does not commit, and
// gives its connection back.
func TestTransactionOfAClosedStoreDoesNotCommit(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	b := newBank(t, url, txPolicy)
	pool, err := pgxpool.New(t.Context(), url)
	must(t, err)
	defer pool.Close()
	s, err := pgstore.New(t.Context(), pool, nil)
	must(t, err)
	tx, db, err := s.BeginTx(t.Context())
	must(t, err)
	must(t, second(db.Exec(t.Context(), book, "k", "late")))
	must(t, s.Close())
	if err := tx.Commit(t.Context()); !errors.Is(err, pgstore.ErrClosed) {
		t.Errorf("Commit = %v", err)
	}
	if got := b.booked(t, "k"); got != "" {
		t.Errorf("booked %q", got)
	}
	eventually(t, "the connection is given back", func() bool { return pool.Stat().AcquiredConns() == 0 })
}

// Close does not wait for ever for a commit on the caller's pool that hangs, and says so.
func TestCloseSaysThatACommitHangs(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	open(t, url, nil)
	pool, err := pgxpool.New(t.Context(), url)
	must(t, err)
	defer pool.Close()
	s, err := pgstore.New(t.Context(), pool, &pgstore.Options{Timeout: 50 * time.Millisecond})
	must(t, err)
	g := closeGate(t, url, beforeCommit, "held")
	defer g.open(t)
	tx, _, err := s.BeginTx(t.Context())
	must(t, err)
	must(t, ignore(second(tx.Reserve(t.Context(), call("held").Ref)), retrysafe.ErrNotFound))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- second(tx.(retrysafe.CreateCommitter).CreateAndCommit(ctx, fresh("held"))) }()
	g.held(t)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("CreateAndCommit = %v", err)
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "a commit is still under way") {
		t.Errorf("Close = %v", err)
	}
}

// A commit wakes the workers of the process, whichever way its messages came, and one
// without messages does not.
func TestCommitWithMessagesWakesWorkers(t *testing.T) {
	t.Parallel()
	b := newBank(t, testservers.Shared(t), txPolicy)
	var woken atomic.Int32
	stop := b.store.Outbox().NotifyCommits(func() { woken.Add(1) })
	m := outbox.Message{Topic: "t"}
	for name, c := range map[string]struct {
		enqueue func(ctx context.Context, tx pgx.Tx) error
		want    int32
	}{
		"none":       {nil, 0},
		"of none":    {func(ctx context.Context, tx pgx.Tx) error { return b.store.Tx(tx).Enqueue(ctx) }, 0},
		"by itself":  {func(ctx context.Context, tx pgx.Tx) error { return tx.(outbox.Enqueuer).Enqueue(ctx, m) }, 1},
		"by a store": {func(ctx context.Context, tx pgx.Tx) error { return b.store.Tx(tx).Enqueue(ctx, m) }, 1},
	} {
		woken.Store(0)
		must(t, second(b.doTx(t.Context(), name, c.enqueue)))
		if n := woken.Load(); n != c.want {
			t.Errorf("messages %s: workers are woken %d times, want %d", name, n, c.want)
		}
	}
	stop()
	woken.Store(0)
	putMessages(t, b.store, m)
	if woken.Load() != 0 {
		t.Error("a worker that has gone is woken")
	}
}

package misusetest

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// GiveBack tests that a transaction which the store has begun gives its connection and its
// key back however it ends, also if its user does nothing after the end.
func GiveBack(t *testing.T, store retrysafe.TxStore[*sql.Tx], db *sql.DB) {
	t.Helper()
	ref := retrysafe.Ref{Scope: "tenant", Key: "given back"}
	write := retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: "absent"}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Attempt: 1,
	}}
	stored := write
	stored.Key = "stored"
	if _, err := store.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	exec := func(ctx context.Context, tx *sql.Tx, statement string) {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	before := db.Stats().InUse
	for name, end := range map[string]func(ctx context.Context, cancel func(), tx retrysafe.Tx, own *sql.Tx) error{
		"Commit":   func(ctx context.Context, _ func(), tx retrysafe.Tx, _ *sql.Tx) error { return tx.Commit(ctx) },
		"Rollback": func(ctx context.Context, _ func(), tx retrysafe.Tx, _ *sql.Tx) error { return tx.Rollback(ctx) },
		"a Swap that is refused": func(ctx context.Context, _ func(), tx retrysafe.Tx, _ *sql.Tx) error {
			_, err := tx.Swap(ctx, write)
			return refused(err, retrysafe.ErrNotFound)
		},
		"a Create that is refused": func(ctx context.Context, _ func(), tx retrysafe.Tx, _ *sql.Tx) error {
			other := stored
			other.Owner = retrysafe.Owner{2}
			if _, err := tx.Create(ctx, other); err == nil {
				return errors.New("it succeeds")
			}
			return nil
		},
		"a message that is refused": func(ctx context.Context, _ func(), tx retrysafe.Tx, _ *sql.Tx) error {
			return refused(tx.(outbox.Enqueuer).Enqueue(ctx, outbox.Message{}), outbox.ErrMessage)
		},
		"the end of its context": func(_ context.Context, cancel func(), _ retrysafe.Tx, _ *sql.Tx) error { cancel(); return nil },
		"COMMIT by its user, and Commit": func(ctx context.Context, _ func(), tx retrysafe.Tx, own *sql.Tx) error {
			exec(ctx, own, `COMMIT`)
			if tx.Commit(ctx) == nil {
				return errors.New("it commits")
			}
			return nil
		},
		"ROLLBACK by its user, and Rollback": func(ctx context.Context, _ func(), tx retrysafe.Tx, own *sql.Tx) error {
			exec(ctx, own, `ROLLBACK`)
			_ = tx.Rollback(ctx)
			return nil
		},
		"Rollback by its user, and Rollback": func(ctx context.Context, _ func(), tx retrysafe.Tx, own *sql.Tx) error {
			return errors.Join(own.Rollback(), refused(tx.Rollback(ctx), retrysafe.ErrTxDone))
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		tx, own, err := store.BeginTx(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // what it holds it can reserve again
			if _, err := tx.Reserve(ctx, ref); !errors.Is(err, retrysafe.ErrNotFound) {
				t.Fatalf("%s: Reserve = %v", name, err)
			}
		}
		if err := end(ctx, cancel, tx, own); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for start := time.Now(); db.Stats().InUse > before; time.Sleep(time.Millisecond) {
			if time.Since(start) > time.Minute {
				t.Fatalf("after %s %d connections are in use, and before %d were", name, db.Stats().InUse, before)
			}
		}
		within, stop := context.WithTimeout(t.Context(), time.Minute)
		next, _, err := store.BeginTx(within)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := next.Reserve(within, ref); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("after %s another transaction gets %v", name, err)
		}
		if err := next.Rollback(t.Context()); err != nil {
			t.Errorf("after %s another transaction is rolled back: %v", name, err)
		}
		stop()
		cancel()
	}
}

func refused(err, want error) error {
	if !errors.Is(err, want) {
		return errors.Join(errors.New("not refused as it must be"), err)
	}
	return nil
}

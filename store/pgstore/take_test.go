package pgstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// A record that was committed between the look and the lock of Take is met by the primary
// key when the answer is inserted, and nothing is committed.
func TestAnswerOfAKeyThatTakeHasMissedIsRefused(t *testing.T) {
	t.Parallel()
	b := newBank(t, testservers.Shared(t), txPolicy)
	must(t, second(b.doTx(t.Context(), "theirs", nil)))
	tx, own, err := b.store.BeginTx(t.Context())
	must(t, err)
	missed := call("missed").Ref
	if _, err := tx.(retrysafe.Taker).Take(t.Context(), missed); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Fatalf("Take = %v, want the key free", err)
	}
	must(t, second(own.Exec(t.Context(), book, "missed", "doTx")))
	exec(t, b.conn, `INSERT INTO retrysafe_keys (id, owner, created, keep, due, revision, deadline, tail, state, checkpoint, head)
		SELECT $1, owner, created, keep, due, revision, deadline, tail, state, checkpoint, head FROM retrysafe_keys WHERE id = $2`,
		pgstore.ID(missed), pgstore.ID(call("theirs").Ref)) // without the lock
	w := fresh("missed")
	w.Ref, w.State, w.Result = missed, retrysafe.StateCompleted, &retrysafe.Result{Status: 201}
	if _, err := tx.(retrysafe.CreateCommitter).CreateAndCommit(t.Context(), w); !errors.Is(err, retrysafe.ErrExists) {
		t.Errorf("CreateAndCommit = %v, want ErrExists", err)
	}
	if got := b.booked(t, "missed"); got != "" {
		t.Errorf("booked by %s beside the record of another call", got)
	}
}

// A transaction that has taken one key stores no answer of another key that is held.
func TestAnswerOfAKeyThatWasNotTakenIsLocked(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	holder, _, err := s.BeginTx(t.Context())
	must(t, err)
	defer func() { must(t, holder.Rollback(context.WithoutCancel(t.Context()))) }()
	if _, err := holder.Reserve(t.Context(), call("held").Ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Fatal(err)
	}
	tx, _, err := s.BeginTx(t.Context())
	must(t, err)
	if _, err := tx.(retrysafe.Taker).Take(t.Context(), call("taken").Ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := tx.(retrysafe.CreateCommitter).CreateAndCommit(t.Context(), done(fresh("held").Record, "x")); !errors.Is(err, retrysafe.ErrBusy) {
		t.Errorf("CreateAndCommit = %v, want ErrBusy", err)
	}
	if _, err := s.Load(t.Context(), call("held").Ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("Load = %v", err)
	}
}

// A transaction of DoTx is READ COMMITTED, whatever the default of the session is.
func TestTakeIsReadCommittedWhateverTheDefault(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		url := testservers.Shared(t)
		exec(t, connect(t, url), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = "`+level+`"', current_database()); END $$`)
		b := newBank(t, url, txPolicy)
		for _, key := range []string{"first", "second"} {
			var got string
			must(t, second(b.doTx(t.Context(), key, func(ctx context.Context, tx pgx.Tx) error {
				return tx.QueryRow(ctx, `SHOW transaction_isolation`).Scan(&got)
			})))
			if got != "read committed" || b.booked(t, key) != "doTx" {
				t.Errorf("with %s as the default, the %s transaction was %s and booked %q", level, key, got, b.booked(t, key))
			}
		}
		if out, err := b.doTx(t.Context(), "first", nil); err != nil || !out.Replayed {
			t.Errorf("the retry got %+v, %v", out, err)
		}
	}
}

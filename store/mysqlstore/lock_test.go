package mysqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
)

// In a small table the server would rather scan than use an index, and meet the locks of
// other transactions on the way. A purge deletes all but the row that a transaction has
// locked, other transactions hold other keys, and messages end beside one that is being
// enqueued.
func TestOpenTransactionDelaysNothingInASmallTable(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.SharedMariaDB(t), &mysqlstore.Options{Timeout: patience})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var recs []retrysafe.Record
	for i := range 5 {
		w := fresh(fmt.Sprint("key ", i))
		w.State, w.Term = retrysafe.StateCompleted, time.Microsecond
		rec, err := s.Create(ctx, w)
		must(t, err)
		recs = append(recs, rec)
	}
	tx, err := join(ctx, s)
	must(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	must(t, second(tx.Swap(ctx, done(recs[2], "answer"))))
	if n, err := s.Purge(ctx, 10); n != 4 || err != nil {
		t.Errorf("Purge = %d, %v; want all but the locked one", n, err)
	}
	if _, err := tx.Reserve(ctx, refOf("held")); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("Reserve = %v", err)
	}
	must(t, tx.Enqueue(ctx, outbox.Message{Topic: "t", Group: "g"}))
	for i := range 5 {
		other, _, err := s.BeginTx(ctx)
		must(t, err)
		if _, err := other.Reserve(ctx, refOf(fmt.Sprint("other ", i))); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("Reserve of another key = %v", err)
		}
		if _, err := other.Reserve(ctx, refOf("held")); !errors.Is(err, retrysafe.ErrBusy) {
			t.Errorf("Reserve of the held key = %v", err)
		}
		must(t, other.(outbox.Enqueuer).Enqueue(ctx, outbox.Message{Topic: "t"}))
		must(t, other.Commit(ctx))
	}
	box := s.Outbox()
	held, err := box.Lease(ctx, retrysafe.Owner{1}, time.Hour)
	must(t, err)
	due, err := box.Due(ctx, held.Shards, 10)
	must(t, err)
	var acks []outbox.Ack
	for i, d := range due {
		acks = append(acks, outbox.Ack{ID: d.ID, Shard: d.Shard, Kind: []outbox.AckKind{outbox.AckDelivered, outbox.AckRetry, outbox.AckDead}[i%3], After: time.Hour})
	}
	ended, err := box.Ack(ctx, acks)
	if err != nil || len(ended) != 5 {
		t.Errorf("Ack = %v, %v", ended, err)
	}
	must(t, tx.Commit(ctx))
}

// A retry of a key whose record a transaction has swapped gets the record as it was, also if
// no batch before had a key that exists.
func TestCreateMeetsTheRecordThatATransactionHasSwapped(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.SharedMariaDB(t), nil)
	rec, err := s.Create(t.Context(), fresh("key"))
	must(t, err)
	tx, _, err := s.BeginTx(t.Context())
	must(t, err)
	must(t, second(tx.Swap(t.Context(), done(rec, "answer"))))
	retry := fresh("key")
	retry.Owner = retrysafe.Owner{2}
	got, err := s.Create(t.Context(), retry)
	if !errors.Is(err, retrysafe.ErrExists) || got.State != rec.State || got.Revision != rec.Revision {
		t.Errorf("Create = %v, %v, want the record as it was", got.State, err)
	}
	must(t, tx.Rollback(t.Context()))
}

// A deadlock between two transactions rolls one of them back. A caller that ignores the
// error cannot store an answer: what follows would be committed by itself.
func TestW39_DeadlockThatIsIgnoredStoresNoAnswer(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.SharedMariaDB(t), nil)
	exec(t, s.DB(), `CREATE TABLE accounts (n INT NOT NULL PRIMARY KEY, amount INT NOT NULL)`)
	exec(t, s.DB(), `INSERT INTO accounts VALUES (1, 0), (2, 0)`)
	lose := func(mine, theirs int, key string) (ignored, commit error) {
		tx, own, err := s.BeginTx(t.Context())
		must(t, err)
		if _, err := tx.Reserve(t.Context(), refOf(key)); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Fatal(err)
		}
		exec := func(n int) error {
			_, err := own.ExecContext(t.Context(), `UPDATE accounts SET amount = amount + 1 WHERE n = ?`, n)
			return err
		}
		must(t, exec(mine))
		blocker, err := s.DB().BeginTx(t.Context(), nil)
		must(t, err)
		// The blocker has written more, so that the server rolls the other one back.
		for range 20 {
			_, err = blocker.ExecContext(t.Context(), `UPDATE accounts SET amount = amount + 1 WHERE n = ?`, theirs)
			must(t, err)
		}
		_, err = blocker.ExecContext(t.Context(), `CREATE TEMPORARY TABLE IF NOT EXISTS t (n INT)`)
		must(t, err)
		waits := make(chan error, 1)
		go func() {
			_, err := blocker.ExecContext(t.Context(), `UPDATE accounts SET amount = amount + 1 WHERE n = ?`, mine)
			waits <- errors.Join(err, blocker.Rollback())
		}()
		ignored = exec(theirs)
		_, create := tx.Create(t.Context(), fresh(key))
		commit = errors.Join(create, tx.Commit(t.Context()))
		<-waits
		return ignored, commit
	}
	for i := range 20 { // until it is the transaction of ours that the server rolls back
		key := fmt.Sprint("key ", i)
		ignored, commit := lose(1, 2, key)
		_, stored := s.Load(t.Context(), refOf(key))
		if ignored == nil {
			if commit != nil || stored != nil {
				t.Errorf("the other one was rolled back, and this one has %v, %v", commit, stored)
			}
			continue
		}
		if commit == nil || !errors.Is(stored, retrysafe.ErrNotFound) {
			t.Errorf("after %v the answer was stored: %v, %v", ignored, commit, stored)
		}
		return
	}
	t.Skip("the server never rolled this transaction back")
}

// An acknowledgement that meets a message whose end is not committed yet waits for that, and
// ends nothing: the message would be delivered and a dead letter too.
func TestAcknowledgementWaitsForAnEndUnderWay(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.SharedMariaDB(t), &mysqlstore.Options{Timeout: patience})
	tx, err := join(t.Context(), s)
	must(t, err)
	must(t, tx.Enqueue(t.Context(), outbox.Message{Topic: "t"}))
	must(t, tx.Commit(t.Context()))
	box := s.Outbox()
	held, err := box.Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	due, err := box.Due(t.Context(), held.Shards, 10)
	must(t, err)
	end, err := s.DB().BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = end.Rollback() }()
	must(t, second(end.ExecContext(t.Context(), `DELETE FROM retrysafe_outbox WHERE id = ?`, due[0].ID)))
	ack := func() error {
		return second(box.Ack(t.Context(), []outbox.Ack{{ID: due[0].ID, Shard: due[0].Shard, Kind: outbox.AckDead, Tries: 1}}))
	}
	acked := make(chan error, 1)
	go func() { acked <- ack() }()
	within(t, patience, "the acknowledgement waits, or has given up", func() bool {
		return len(acked) > 0 || one[int](t, s.DB(), `SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID() AND INFO LIKE '%retrysafe_outbox%'`) > 0
	})
	must(t, end.Commit())
	if err := <-acked; errors.Is(err, retrysafe.ErrBusy) {
		must(t, ack())
	} else {
		must(t, err)
	}
	if dead, err := box.DeadLetters(t.Context(), 0, 10); len(dead) != 0 || err != nil {
		t.Errorf("a message that has ended is a dead letter: %v, %v", dead, err)
	}
}

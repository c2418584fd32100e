package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/leasetest"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func enqueue(t testing.TB, s *sqlitestore.Store, messages ...outbox.Message) {
	t.Helper()
	tx, err := s.DB().BeginTx(t.Context(), nil)
	if err == nil {
		err = s.Tx(tx).Enqueue(t.Context(), messages...)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A read finds what is due by indexes, however much is kept back.
func TestDueScansNoTable(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	rows, err := s.DB().QueryContext(t.Context(), `EXPLAIN QUERY PLAN `+sqlitestore.SelectDue, 0, `[]`, 1)
	must(t, err)
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		must(t, rows.Scan(&id, &parent, &unused, &detail))
		fmt.Fprintln(&plan, detail)
	}
	must(t, rows.Err())
	for _, want := range []string{
		"SCAN m USING INDEX retrysafe_outbox_lines", // only of groups, in the order in which they go
		"SEARCH f USING INDEX retrysafe_outbox_failed (line=?",
		"SEARCH retrysafe_outbox USING COVERING INDEX retrysafe_outbox_free (due<?)",
		"SEARCH retrysafe_outbox USING INTEGER PRIMARY KEY (rowid=?)",
	} {
		if !strings.Contains(strings.ReplaceAll(plan.String(), "USING INDEX retrysafe_outbox_free", "USING COVERING INDEX retrysafe_outbox_free"), want) {
			t.Errorf("the plan has no %q:\n%s", want, plan.String())
		}
	}
}

// A message that commits with its answer is sent by a worker of another handle, and
// ids are never given twice.
func TestIDsAreNeverGivenTwice(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	s, other := open(t, path), open(t, path)
	held, err := other.Outbox().Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	seen := map[int64]bool{}
	for range 5 {
		enqueue(t, s, outbox.Message{Topic: "t"})
		list, err := other.Outbox().Due(t.Context(), held.Shards, 10)
		must(t, err)
		if len(list) != 1 || seen[list[0].ID] {
			t.Fatalf("%+v, seen before %v", list, seen)
		}
		seen[list[0].ID] = true
		must(t, second(other.Outbox().Ack(t.Context(), []outbox.Ack{{ID: list[0].ID, Shard: list[0].Shard, Kind: outbox.AckDelivered}})))
	}
}

// An outbox works with a single connection, also where it has to say what is wrong.
func TestOutboxWithOneConnection(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", sqlitestore.DSN(filepath.Join(t.TempDir(), "keys.db")))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	s, err := sqlitestore.New(t.Context(), db, nil)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	for range 3 {
		enqueue(t, s, outbox.Message{Topic: "t"}, outbox.Message{Topic: "t", Group: "g"})
		w, err := outbox.NewWorker(s.Outbox(), nothing{}, nil)
		must(t, err)
		if n, err := w.RunOnce(t.Context()); n != 2 || err != nil {
			t.Fatalf("%d delivered, %v", n, err)
		}
		must(t, w.Release(t.Context()))
	}
	exec(t, db, `DROP TABLE retrysafe_outbox`)
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	if err := s.Tx(tx).Enqueue(t.Context(), outbox.Message{Topic: "t"}); err == nil || !strings.Contains(err.Error(), "run the migrations") {
		t.Error(err)
	}
	if tx.Commit() == nil {
		t.Error("it committed without its message")
	}
	exec(t, db, `DROP TABLE retrysafe_fence`)
	tx, err = db.BeginTx(t.Context(), nil)
	must(t, err)
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.Tx(tx).Reserve(within, keyed("k").Ref); err == nil || !strings.Contains(err.Error(), "run the migrations") || within.Err() != nil {
		t.Errorf("Reserve = %v; it waits for the connection of its own transaction: %v", err, within.Err())
	}
	if tx.Commit() == nil {
		t.Error("it committed without its key")
	}
}

// Messages that are too large to be written at once are enqueued all, or not at all.
func TestLargeMessagesThatFailLeaveNothing(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	exec(t, s.DB(), `CREATE TRIGGER refusal BEFORE INSERT ON retrysafe_outbox WHEN length(new.msg) > 600000 BEGIN SELECT RAISE(FAIL, 'not today'); END`)
	var messages []outbox.Message
	for i := range 3 { // the first alone is refused, and is written with the second
		messages = append(messages, outbox.Message{Topic: "t", Payload: make([]byte, 600_000-100_000*i)})
	}
	tx, err := s.DB().BeginTx(t.Context(), nil)
	must(t, err)
	if s.Tx(tx).Enqueue(t.Context(), messages...) == nil {
		t.Error("messages are enqueued without the first")
	}
	if tx.Commit() == nil {
		t.Error("it committed without its messages")
	}
}

// One read is bounded in bytes too; the rest comes later.
func TestDueIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	large := make([]byte, 1<<20)
	var messages []outbox.Message
	for range 70 {
		messages = append(messages, outbox.Message{Topic: "t", Group: "g", Payload: large})
	}
	enqueue(t, s, messages...)
	held, err := s.Outbox().Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	total := 0
	for {
		list, err := s.Outbox().Due(t.Context(), held.Shards, 1000)
		must(t, err)
		if len(list) == 0 {
			break
		}
		if len(list) > 64 {
			t.Fatalf("%d messages of 1 MiB in one read", len(list))
		}
		var ends []outbox.Ack
		for i := range list {
			ends = append(ends, outbox.Ack{ID: list[i].ID, Shard: list[i].Shard, Kind: outbox.AckDelivered})
		}
		must(t, second(s.Outbox().Ack(t.Context(), ends)))
		total += len(list)
	}
	if total != 70 {
		t.Errorf("%d of 70 messages came", total)
	}
}

// BenchmarkOutbox is ten messages a transaction, and a backlog of them to a sink that
// does nothing, one call after the other.
func BenchmarkOutbox(b *testing.B) {
	s, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "keys.db"), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	w, err := outbox.NewWorker(s.Outbox(), nothing{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	next := 0
	ten := func() []outbox.Message { // of a thousand groups
		list := make([]outbox.Message, 10)
		for i := range list {
			next++
			list[i] = outbox.Message{Topic: "t", Group: fmt.Sprint(next % 1000), Payload: make([]byte, 200)}
		}
		return list
	}
	b.Run("enqueue", func(b *testing.B) {
		for range b.N {
			enqueue(b, s, ten()...)
		}
		b.ReportMetric(10*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	})
	b.Run("drain", func(b *testing.B) {
		enqueue(b, s, ten()...)
		if _, err := w.RunOnce(b.Context()); err != nil {
			b.Fatal(err)
		}
		for range b.N {
			enqueue(b, s, ten()...)
		}
		b.ResetTimer()
		n, err := w.RunOnce(b.Context())
		if err != nil || n != 10*b.N {
			b.Fatalf("%d delivered, %v", n, err)
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "messages/s")
	})
}

type nothing struct{}

func (nothing) Deliver(_ context.Context, batch []outbox.Delivery) []outbox.Receipt {
	return make([]outbox.Receipt, len(batch))
}

// A message of a group that cannot be read is still of its group, which it holds up, and one
// that stands in another group's row is not sent.
func TestUnreadableMessageStaysInItsGroup(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	for i := range 2 {
		enqueue(t, s, outbox.Message{Topic: "t", Group: "g", Payload: []byte{byte(i)}})
	}
	exec(t, s.DB(), `UPDATE retrysafe_outbox SET msg = CASE id WHEN 1 THEN x'' ELSE msg END, line = CASE id WHEN 1 THEN line ELSE x'68' END`)
	held, err := s.Outbox().Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	due, err := s.Outbox().Due(t.Context(), held.Shards, 10)
	if err != nil || len(due) != 2 {
		t.Fatalf("due are %+v, %v", due, err)
	}
	for i, group := range []string{"g", "h"} {
		if d := &due[i]; !errors.Is(d.Err, outbox.ErrUnreadable) || d.Group != group || d.Topic != "" {
			t.Errorf("message %d of group %q is read as %+v, %v", d.ID, group, d.Message, d.Err)
		}
	}
}

// A message is as old as its transaction, however long it waits: its receiver's memory of
// its key is counted from then on.
func TestMessageThatWaitsIsAsOldAsItsTransaction(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	enqueue(t, s, outbox.Message{Topic: "t", Wait: time.Hour})
	if waits := one[int64](t, s.DB(), `SELECT due - enqueued FROM retrysafe_outbox`); waits != time.Hour.Microseconds() {
		t.Errorf("a message that waits an hour is due %d µs after it was enqueued", waits)
	}
}

// A message and a dead letter of the same instant are both reported with their age.
func TestDepthOfTheSameInstant(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	at := time.Now().Add(-time.Hour).UnixMicro()
	for _, row := range []string{
		`INSERT INTO retrysafe_outbox (shard, line, due, enqueued, msg) VALUES (0, x'', ?1, ?1, x'')`,
		`INSERT INTO retrysafe_dead VALUES (7, 0, x'', ?1, 1, '', '', x'', ?1, 1)`,
	} {
		if _, err := s.DB().ExecContext(t.Context(), row, at); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := s.Outbox().Depth(t.Context()); err != nil || d.Oldest < time.Hour || d.OldestDead < time.Hour {
		t.Errorf("Depth = %+v, %v; want both an hour old", d, err)
	}
}

func TestClockSetBackLeavesNoShardHeld(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	leasetest.ClockSetBack(t, s.Outbox(), s.DB())
}

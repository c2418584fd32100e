package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/movetest"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// moveHarness is a file, and what it says of a move.
func moveHarness(t *testing.T) movetest.Harness {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.db")
	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	begin := func(ctx context.Context, s movetest.Store, opts *sql.TxOptions) (retrysafe.Tx, *sql.Tx, error) {
		own := s.(*sqlitestore.Store)
		tx, err := own.DB().BeginTx(ctx, opts)
		if err != nil {
			return nil, nil, err
		}
		return own.Tx(tx), tx, nil
	}
	return movetest.Harness{
		Open: func(ctx context.Context, moving bool) (movetest.Store, error) {
			s, err := sqlitestore.Open(ctx, path, &sqlitestore.Options{Moving: moving})
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = s.Close() })
			return s, nil
		},
		Begin: func(ctx context.Context, s movetest.Store) (retrysafe.Tx, error) {
			tx, _, err := begin(ctx, s, nil)
			return tx, err
		},
		BeginIdle: func(ctx context.Context, s movetest.Store) (retrysafe.Tx, error) { // it has read, and has no lock
			tx, own, err := begin(ctx, s, &sql.TxOptions{ReadOnly: true})
			if err != nil {
				return nil, err
			}
			n := 0
			return tx, own.QueryRowContext(ctx, `SELECT count(*) FROM retrysafe_keys`).Scan(&n)
		},
		Exec: func(t *testing.T, statement string) {
			t.Helper()
			exec(t, db, statement)
		},
		Outbox: func(s movetest.Store) outbox.Store { return s.(*sqlitestore.Store).Outbox() },
		Purge: func(t *testing.T, s movetest.Store, _ [2]retrysafe.Ref) {
			t.Helper()
			if n, err := s.Purge(t.Context(), 10); n != 2 || err != nil {
				t.Fatalf("Purge = %d, %v", n, err)
			}
		},
		Triggers: func(t *testing.T) int {
			t.Helper()
			return one[int](t, db, `SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'`)
		},
		ExpireLog: func(t *testing.T) {
			t.Helper()
			trigger := one[string](t, db, `SELECT sql FROM sqlite_schema WHERE name = 'retrysafe_written_INSERT'`)
			exec(t, db, `DROP TRIGGER retrysafe_written_INSERT`)
			exec(t, db, regexp.MustCompile(`(<|>=) \d+`).ReplaceAllString(trigger, "$1 1000"))
		},
		Missed: func(t *testing.T) int {
			t.Helper()
			return one[int](t, db, `SELECT count(*) FROM retrysafe_written WHERE id IS NULL`)
		},
		LoadsClosed: true,
	}
}

func TestFollowNotesEveryWrite(t *testing.T) {
	t.Parallel()
	movetest.FollowNotesEveryWrite(t, moveHarness(t))
}

func TestFollowEndsByItself(t *testing.T) {
	t.Parallel()
	movetest.FollowEndsByItself(t, moveHarness(t))
}

// The log of a move that was killed ends after a day: earlier, and a long move misses
// writes; later, and the log fills the disk.
func TestFollowEndsAfterADay(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	before := time.Now()
	must(t, second(s.Mover().Follow(t.Context(), retrysafe.Owner{7})))
	after := time.Now()
	for _, event := range []string{"INSERT", "UPDATE", "DELETE"} {
		trigger := one[string](t, s.DB(), `SELECT sql FROM sqlite_schema WHERE name = ?`, "retrysafe_written_"+event)
		ends := regexp.MustCompile(`unixepoch\(\) (?:<|>=) (\d+)`).FindAllStringSubmatch(trigger, -1)
		if len(ends) != 2 {
			t.Fatalf("the log of %s has %d ends: %s", event, len(ends), trigger)
		}
		for _, found := range ends {
			n, err := strconv.ParseInt(found[1], 10, 64)
			must(t, err)
			if end := time.Unix(n, 0); end.Before(before.Add(24*time.Hour-time.Second)) || end.After(after.Add(24*time.Hour)) {
				t.Errorf("the log of %s ends at %v, want a day after %v", event, end, before)
			}
		}
	}
}

func TestRetireWaitsForTransactions(t *testing.T) {
	t.Parallel()
	movetest.RetireWaitsForTransactions(t, moveHarness(t))
}

func TestFillIsOneRuns(t *testing.T) {
	t.Parallel()
	movetest.FillIsOneRuns(t, moveHarness(t))
}

func TestImportKeepsRecords(t *testing.T) {
	t.Parallel()
	movetest.ImportKeepsRecords(t, moveHarness(t))
}

func TestMovingOpensWhatIsClosed(t *testing.T) {
	t.Parallel()
	movetest.MovingOpensWhatIsClosed(t, moveHarness(t))
}

func TestRetireIsUndone(t *testing.T) {
	t.Parallel()
	movetest.RetireIsUndone(t, moveHarness(t))
}

func TestFillIsUndone(t *testing.T) {
	t.Parallel()
	movetest.FillIsUndone(t, moveHarness(t))
}

func TestMessagesStay(t *testing.T) {
	t.Parallel()
	movetest.MessagesStay(t, moveHarness(t))
}

// The last part of a move is one transaction, and the end of the caller's context does not
// cut it in two: it is rolled back, or it is committed. Otherwise its connection would go
// back to the pool with the write lock.
func TestRetireWhoseContextEnds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	s, other := patient(t, path), patient(t, path)
	run, full := retrysafe.Owner{7}, errors.New("the destination is full")
	must(t, second(s.Mover().Follow(t.Context(), run)))
	for _, want := range []error{full, nil} {
		put(t, other, fmt.Sprint("before ", want))
		ctx, cancel := context.WithCancel(t.Context())
		err := s.Mover().Retire(ctx, run, "elsewhere", func(context.Context, []retrysafe.Record, []retrysafe.Ref) error {
			cancel()
			return want
		})
		if !errors.Is(err, want) {
			t.Fatalf("Retire = %v, want %v", err, want)
		}
	}
	if _, err := other.Create(t.Context(), fresh("too late")); !errors.Is(err, sqlitestore.ErrMoved) {
		t.Errorf("Create after the move = %v", err)
	}
}

// The cut takes the whole log, however long it is, also if a part of it names only keys
// that are gone. What it left out would be missing in the new store.
func TestRetireTakesTheWholeLog(t *testing.T) {
	t.Parallel()
	s := patient(t, filepath.Join(t.TempDir(), "keys.db"))
	run := retrysafe.Owner{7}
	must(t, second(s.Mover().Follow(t.Context(), run)))
	put(t, s, "gone")
	exec(t, s.DB(), `DELETE FROM retrysafe_keys`)
	exec(t, s.DB(), `WITH RECURSIVE c (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM c WHERE n < 1500)
		INSERT INTO retrysafe_written (id, rec) SELECT id, rec FROM retrysafe_written, c WHERE rec IS NOT NULL`)
	put(t, s, "last")
	found := false
	must(t, s.Mover().Retire(t.Context(), run, "elsewhere", func(_ context.Context, written []retrysafe.Record, _ []retrysafe.Ref) error {
		found = found || slices.ContainsFunc(written, func(r retrysafe.Record) bool { return r.Key == "last" })
		return nil
	}))
	if !found {
		t.Error("the last record is not copied")
	}
}

// A row that holds the record of another key is not copied: it would overwrite that key's
// own.
func TestFollowRefusesARecordOfAnotherKey(t *testing.T) {
	t.Parallel()
	s := patient(t, filepath.Join(t.TempDir(), "keys.db"))
	run := retrysafe.Owner{7}
	put(t, s, "one")
	put(t, s, "two")
	must(t, second(s.Mover().Follow(t.Context(), run)))
	exec(t, s.DB(), `UPDATE retrysafe_keys SET rec = (SELECT rec FROM retrysafe_keys WHERE id = ?) WHERE id = ?`, sqlitestore.ID(keyed("one").Ref), sqlitestore.ID(keyed("two").Ref))
	if written, _, err := s.Mover().Written(t.Context(), run, 10); !errors.Is(err, retrysafe.ErrUnreadable) {
		t.Errorf("Written = %+v, %v", written, err)
	}
}

// Every step of a store that was moved is refused, also those of its outbox: what they
// write would be lost.
func TestEveryStepOfAMovedStoreIsRefused(t *testing.T) {
	t.Parallel()
	s := patient(t, filepath.Join(t.TempDir(), "keys.db"))
	r, err := s.Create(t.Context(), fresh("k"))
	must(t, err)
	run := retrysafe.Owner{7}
	must(t, second(s.Mover().Follow(t.Context(), run)))
	before := s.DB().Stats().InUse
	must(t, s.Mover().Retire(t.Context(), run, "elsewhere", func(context.Context, []retrysafe.Record, []retrysafe.Ref) error { return nil }))
	if after := s.DB().Stats().InUse; after != before {
		t.Errorf("a step of a move keeps a connection: %d are in use, and before %d were", after, before)
	}
	ctx, shard := t.Context(), []outbox.Shard{{N: 1, Epoch: 1}}
	within := func(do func(*sqlitestore.Tx) error) error {
		tx, err := s.DB().BeginTx(ctx, nil)
		must(t, err)
		defer tx.Rollback()
		return do(s.Tx(tx))
	}
	for step, err := range map[string]error{
		"Create":      second(s.Create(ctx, fresh("new"))),
		"Swap":        second(s.Swap(ctx, done(r, "late"))),
		"Load":        second(s.Load(ctx, r.Ref)),
		"List":        second(s.List(ctx, retrysafe.Query{})),
		"Count":       second(s.Count(ctx, r.Scope)),
		"Purge":       second(s.Purge(ctx, 10)),
		"Reserve":     within(func(tx *sqlitestore.Tx) error { return second(tx.Reserve(ctx, r.Ref)) }),
		"Enqueue":     within(func(tx *sqlitestore.Tx) error { return tx.Enqueue(ctx, outbox.Message{Topic: "t"}) }),
		"Lease":       second(s.Outbox().Lease(ctx, retrysafe.Owner{1}, time.Hour)),
		"Due":         second(s.Outbox().Due(ctx, shard, 10)),
		"Ack":         second(s.Outbox().Ack(ctx, []outbox.Ack{{ID: 1, Shard: shard[0], Kind: outbox.AckDelivered}})),
		"DeadLetters": second(s.Outbox().DeadLetters(ctx, 0, 10)),
		"Dispose":     s.Outbox().Dispose(ctx, outbox.Disposal{ID: 1}),
		"Depth":       second(s.Outbox().Depth(ctx)),
	} {
		if !errors.Is(err, sqlitestore.ErrMoved) {
			t.Errorf("%s = %v, want ErrMoved", step, err)
		}
	}
	for _, table := range []string{"keys", "fence", "outbox", "dead", "shards", "workers"} {
		if n := one[int](t, s.DB(), `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?`, "retrysafe_"+table); n != 0 {
			t.Errorf("a process that was started before can still use the table of %s", table)
		}
	}
}

// An import that cannot be written is an error: the records would be missing in the new
// store.
func TestImportThatFailsIsAnError(t *testing.T) {
	t.Parallel()
	s := patient(t, filepath.Join(t.TempDir(), "keys.db"))
	run, source := retrysafe.Owner{1}, retrysafe.Owner{2}
	must(t, s.Mover().Fill(t.Context(), run, source, "elsewhere"))
	exec(t, s.DB(), `CREATE TRIGGER full BEFORE INSERT ON retrysafe_keys_filling BEGIN SELECT RAISE(ABORT, 'full'); END`)
	records := []retrysafe.Record{{Ref: retrysafe.Ref{Scope: "s", Key: "k"}, State: retrysafe.StateCompleted, Version: retrysafe.RecordVersion, Owner: run}}
	if err := s.Mover().Import(t.Context(), run, records, nil); err == nil {
		t.Error("a record is not imported, and no error says so")
	}
	exec(t, s.DB(), `DROP TRIGGER full`)
	for i := range 3 { // more than are written at once
		r := records[0]
		r.Key, r.Result = fmt.Sprint("large ", i), &retrysafe.Result{Body: make([]byte, 600_000)}
		records = append(records, r)
	}
	exec(t, s.DB(), `CREATE TRIGGER full BEFORE INSERT ON retrysafe_keys_filling WHEN length(new.rec) < 1000 BEGIN SELECT RAISE(ABORT, 'full'); END`)
	if err := s.Mover().Import(t.Context(), run, records, nil); err == nil {
		t.Error("the first record of many is not imported, and no error says so")
	}
	exec(t, s.DB(), `DROP TRIGGER full`)
	must(t, s.Mover().Import(t.Context(), run, records, nil))
	must(t, s.Mover().Filled(t.Context(), run))
	for i := range records {
		if _, err := s.Load(t.Context(), records[i].Ref); err != nil {
			t.Errorf("%s: %v", records[i].Key, err)
		}
	}
}

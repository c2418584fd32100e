package pgstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

var nowhere = outbox.SinkFunc(func(context.Context, *outbox.Delivery) outbox.Receipt { return outbox.Receipt{} })

// Where an owner has migrated the schema and not granted the new table, or where it is
// not there yet, keys and messages work as before; only a worker that is to keep receipts
// is refused, with the remedy.
func TestReceiptsThatTheRoleMayNotKeep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ change, says string }{
		"no right to the table": {`REVOKE ALL ON retrysafe_receipts FROM `, "GRANT SELECT, INSERT, UPDATE, DELETE ON "},
		"no table":              {`DROP TABLE retrysafe_receipts -- `, "run the migrations"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testservers.Shared(t)
			works(t, open(t, url, nil))
			conn := connect(t, url)
			role := newRole(t, conn)
			exec(t, conn, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA `+one[string](t, conn, `SELECT quote_ident(current_schema())`)+` TO `+role)
			exec(t, conn, c.change+role)
			s := open(t, as(t, url, role), &pgstore.Options{SkipMigrations: true})
			works(t, s)
			must(t, second(s.Purge(t.Context(), 10)))
			if _, err := s.Outbox().Receipts(t.Context(), outbox.ReceiptQuery{Limit: 1}); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("Receipts = %v", err)
			}
			_, err := outbox.NewWorker(s.Outbox(), nowhere, &outbox.Options{KeepReceipts: time.Hour})
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("NewWorker = %v", err)
			}
			_, err = outbox.NewWorker(s.Outbox(), nowhere, nil)
			must(t, err)
			// A message that is to leave a receipt ends without one.
			held, err := s.Outbox().Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
			must(t, err)
			putMessages(t, s, outbox.Message{Topic: "t"})
			list, err := s.Outbox().Due(t.Context(), held.Shards, 10)
			must(t, err)
			for _, d := range list {
				ended, err := s.Outbox().Ack(t.Context(), []outbox.Ack{{ID: d.ID, Shard: d.Shard, Kind: outbox.AckDelivered, Tries: 1, Keep: time.Hour, Message: &d.Message}})
				must(t, err)
				must(t, ended[0].Err)
			}
			if d, err := s.Outbox().Depth(t.Context()); err != nil || len(list) != 1 || d.Waiting != 0 {
				t.Errorf("of %d messages %d are left, %v", len(list), d.Waiting, err)
			}
			err = s.Outbox().ForgetReceipts(t.Context(), call("k").Ref)
			if (err == nil) != (name == "no table") { // what may be there and cannot be deleted is an error
				t.Errorf("ForgetReceipts = %v", err)
			}
		})
	}
}

// A role that lacks a single right to the tables of changes or of receipts is found out
// when the store is opened: an operator's change is made without being announced, a message
// ends without a receipt, and the store says that it has neither.
func TestRightsThatAreMissingAreFoundOut(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	works(t, open(t, url, nil))
	conn := connect(t, url)
	role := newRole(t, conn)
	exec(t, conn, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA `+one[string](t, conn, `SELECT quote_ident(current_schema())`)+` TO `+role)
	opened := func(key string) (changes, receipts error) {
		t.Helper()
		s := open(t, as(t, url, role), &pgstore.Options{SkipMigrations: true})
		r, err := s.Create(t.Context(), fresh(key))
		must(t, err)
		w := done(r, "answer")
		w.Announce = true
		must(t, second(s.Swap(t.Context(), w)))
		_, _, changes = s.Changes(t.Context(), "")
		return changes, second(s.Outbox().Receipts(t.Context(), outbox.ReceiptQuery{Limit: 1}))
	}
	if changes, receipts := opened("all rights"); changes != nil || receipts != nil {
		t.Errorf("with all rights: %v, %v", changes, receipts)
	}
	for _, right := range []string{
		"SELECT ON retrysafe_changes", "INSERT ON retrysafe_changes", "DELETE ON retrysafe_changes", "SELECT ON retrysafe_last_change", "UPDATE ON retrysafe_last_change",
		"SELECT ON retrysafe_receipts", "INSERT ON retrysafe_receipts", "UPDATE ON retrysafe_receipts", "DELETE ON retrysafe_receipts",
	} {
		exec(t, conn, `REVOKE `+right+` FROM `+role)
		changes, receipts := opened(right)
		if ofReceipts := strings.Contains(right, "receipts"); errors.Is(receipts, errors.ErrUnsupported) != ofReceipts || errors.Is(changes, errors.ErrUnsupported) == ofReceipts {
			t.Errorf("without %s: %v, %v", right, changes, receipts)
		}
		exec(t, conn, `GRANT `+right+` TO `+role)
	}
}

// Of several messages that end together those leave receipts that are to, wherever they
// stand among the others.
func TestReceiptsOfSomeMessages(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	held, err := s.Outbox().Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	for _, others := range []outbox.AckKind{outbox.AckDelivered, outbox.AckDead} {
		putMessages(t, s, outbox.Message{Topic: "other", Group: "a"}, outbox.Message{Topic: "kept", Group: "b"})
		list, err := s.Outbox().Due(t.Context(), held.Shards, 10)
		must(t, err)
		var acks []outbox.Ack
		for _, d := range list {
			a := outbox.Ack{ID: d.ID, Shard: d.Shard, Group: d.Group, Kind: others, Tries: 1}
			if d.Topic == "kept" {
				a.Kind, a.Keep, a.Message = outbox.AckDelivered, time.Hour, &d.Message
			}
			acks = append(acks, a)
		}
		must(t, second(s.Outbox().Ack(t.Context(), acks)))
		kept, err := s.Outbox().Receipts(t.Context(), outbox.ReceiptQuery{Limit: 10, After: list[0].ID})
		if err != nil || len(kept) != 1 || kept[0].ID != list[1].ID || kept[0].Topic != "kept" {
			t.Errorf("the receipts are %+v, %v", kept, err)
		}
	}
}

// Receipts are found by an index, whichever way they are asked for, also when there are
// many.
func TestReceiptsAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	exec(t, conn, `INSERT INTO retrysafe_receipts
		SELECT n, 1, CASE WHEN n % 2 = 0 THEN 1 ELSE 9000000000000000000 END, gen_random_uuid(), 'topic', 'key', 'scope', 'settled', ('ch_' || n)::bytea FROM generate_series(1, 20000) n`)
	exec(t, conn, `ANALYZE retrysafe_receipts`)
	for index, statement := range map[string]string{
		"retrysafe_receipts_ref":     `SELECT 1 FROM retrysafe_receipts WHERE provider_ref = 'ch_7' AND provider_ref <> ''`,
		"retrysafe_receipts_key":     `SELECT 1 FROM retrysafe_receipts WHERE key_id = '11111111-1111-1111-1111-111111111111' AND key_id <> '00000000-0000-0000-0000-000000000000'`,
		"retrysafe_receipts_expires": `SELECT ctid FROM retrysafe_receipts WHERE expires <= 5 ORDER BY expires LIMIT 10`,
	} {
		rows, err := conn.Query(t.Context(), `EXPLAIN `+statement)
		must(t, err)
		plan := ""
		for rows.Next() {
			var line string
			must(t, rows.Scan(&line))
			plan += line + "\n"
		}
		must(t, rows.Err())
		if !strings.Contains(plan, index) {
			t.Errorf("%s is not used:\n%s", index, plan)
		}
	}
	list, err := s.Outbox().Receipts(t.Context(), outbox.ReceiptQuery{ProviderRef: "ch_7", Limit: 5})
	must(t, err)
	if len(list) != 1 || list[0].ID != 7 {
		t.Errorf("the receipts are %+v", list)
	}
	for _, want := range []int{4000, 6000, 0} { // in batches, up to the limit
		n, err := s.Purge(t.Context(), max(want, 1))
		must(t, err)
		if n != want {
			t.Errorf("Purge = %d, want %d", n, want)
		}
	}
}

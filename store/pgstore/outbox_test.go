package pgstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/storetest"
)

// boxHarness is an outbox in a schema of its own, and two handles more on it.
func boxHarness(t *testing.T, url string, opts *pgstore.Options, begin func(context.Context, *pgstore.Store) (storetest.OutboxTx, error)) storetest.OutboxHarness {
	t.Helper()
	s := open(t, url, opts)
	return storetest.OutboxHarness{
		Store: s, Outbox: s.Outbox(),
		Peers: []outbox.Store{open(t, url, opts).Outbox(), open(t, url, opts).Outbox()},
		Begin: func(ctx context.Context) (storetest.OutboxTx, error) { return begin(ctx, s) },
		Damage: func(id int64) error {
			_, err := s.Pool().Exec(t.Context(), `UPDATE `+pgx.Identifier{opts.Schema, "retrysafe_outbox"}.Sanitize()+` SET body = set_byte(body, 9, 255 - get_byte(body, 9)) WHERE id = $1`, id)
			return err
		},
	}
}

func joinPgx(ctx context.Context, s *pgstore.Store) (storetest.OutboxTx, error) {
	tx, err := s.Pool().Begin(ctx)
	if err != nil {
		return nil, err
	}
	return s.Tx(tx), nil
}

func TestOutboxContract(t *testing.T) {
	t.Parallel()
	next := inSchemas(t)
	storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxHarness {
		url, schema := next(t)
		return boxHarness(t, url, &pgstore.Options{Schema: schema}, joinPgx)
	})
}

func TestOutboxContractOfSQLTx(t *testing.T) {
	t.Parallel()
	next := inSchemas(t)
	storetest.RunOutboxTx(t, func(t *testing.T) storetest.OutboxHarness {
		url, schema := next(t)
		return boxHarness(t, url, &pgstore.Options{Schema: schema}, func(ctx context.Context, s *pgstore.Store) (storetest.OutboxTx, error) {
			db := stdlib.OpenDBFromPool(s.Pool())
			t.Cleanup(func() { _ = db.Close() })
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return nil, err
			}
			return s.SQLTx(tx), nil
		})
	})
}

func TestOutboxContractOfOwnTx(t *testing.T) {
	t.Parallel()
	next := inSchemas(t)
	storetest.RunOutboxTx(t, func(t *testing.T) storetest.OutboxHarness {
		url, schema := next(t)
		return boxHarness(t, url, &pgstore.Options{Schema: schema}, func(ctx context.Context, s *pgstore.Store) (storetest.OutboxTx, error) {
			tx, _, err := s.BeginTx(ctx)
			if err != nil {
				return nil, err
			}
			return tx.(storetest.OutboxTx), nil
		})
	})
}

// Behind a pooler in transaction mode nothing is prepared.
func TestOutboxContractBehindPgBouncer(t *testing.T) {
	t.Parallel()
	pg := testservers.NewPostgres(t, inMemory)
	address := testservers.NewPgBouncer(t, pg, nil).URL("postgres")
	next := inSchemas(t)
	storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxHarness {
		_, schema := next(t)
		return boxHarness(t, address, &pgstore.Options{Schema: schema, PgBouncer: true}, joinPgx)
	})
}

// Beyond what is counted, the depth is an estimate of the server's, and never less. A
// message without a group that is older than all of them is not overlooked.
func TestDepthOfManyMessages(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	const hour = 3600e6
	exec(t, conn, `INSERT INTO retrysafe_outbox (line, shard, due, enqueued, body)
		SELECT 1, 0, n.now, n.now, '' FROM generate_series(1, 30000), (SELECT (extract(epoch FROM now()) * 1e6)::bigint AS now) n`)
	exec(t, conn, `INSERT INTO retrysafe_outbox (line, shard, due, enqueued, body) SELECT 0, 7, n.now, n.now, '' FROM (SELECT (extract(epoch FROM now()) * 1e6 - $1)::bigint AS now) n`, int64(hour))
	eventually(t, "the depth is about that of the table", func() bool {
		// The server may count the insertions once more after an ANALYZE, because a session
		// reports them late. The next ANALYZE sets that right.
		exec(t, conn, `ANALYZE retrysafe_outbox`)
		d, err := s.Outbox().Depth(t.Context())
		must(t, err)
		if d.Waiting < 20000 || d.Oldest < time.Hour {
			t.Fatalf("the depth of 30,001 messages is %+v", d)
		}
		return d.Waiting > 29000 && d.Waiting < 31000
	})
}

// An acknowledgement that the server refuses for its values fails alone, and the others of
// the call are applied.
func TestAckThatTheServerRefusesFailsAlone(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	exec(t, conn, `ALTER TABLE retrysafe_outbox ADD CONSTRAINT polite CHECK (why IS DISTINCT FROM 'rude')`)
	held, err := s.Outbox().Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	for _, group := range []string{"again", "rude", "delivered"} {
		putMessages(t, s, outbox.Message{Topic: "t", Group: group})
	}
	list, err := s.Outbox().Due(t.Context(), held.Shards, 10)
	must(t, err)
	var acks []outbox.Ack
	for _, d := range list {
		a := outbox.Ack{ID: d.ID, Shard: d.Shard, Group: d.Group, Kind: outbox.AckRetry, Tries: 1, After: time.Hour, Why: d.Group}
		if d.Group == "delivered" {
			a.Kind = outbox.AckDelivered
		}
		acks = append(acks, a)
	}
	ended, err := s.Outbox().Ack(t.Context(), acks)
	must(t, err)
	for i, e := range ended {
		if (e.Err != nil) != (acks[i].Group == "rude") {
			t.Errorf("%s: %v", acks[i].Group, e.Err)
		}
	}
	if left, err := s.Outbox().Due(t.Context(), held.Shards, 10); err != nil || len(left) != 1 || left[0].Group != "rude" {
		t.Errorf("due are %+v, %v", left, err)
	}
	if failing, err := s.Outbox().Failing(t.Context(), 0, 10); err != nil || len(failing) != 1 || failing[0].Group != "again" {
		t.Errorf("failing are %+v, %v", failing, err)
	}
}

// The acknowledgements of one call do not depend on each other: one under an epoch that is
// over, one whose record a transaction has locked, and those beside them, in any order. The
// same one twice gets the same result.
func TestAcksOfOneCall(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	box := s.Outbox()
	held, err := box.Lease(t.Context(), retrysafe.Owner{1}, time.Hour)
	must(t, err)
	r, err := s.Create(t.Context(), fresh("k"))
	must(t, err)
	for _, name := range []string{"stale", "present", "dead", "kept", "locked"} {
		m := outbox.Message{Topic: name, Group: name}
		switch name {
		case "present":
			m.Group = "stale" // and so of the same shard
		case "locked":
			m.Settles = &r
		}
		putMessages(t, s, m)
	}
	list, err := box.Due(t.Context(), held.Shards, 10)
	must(t, err)
	tx, err := s.Pool().Begin(t.Context())
	must(t, err)
	must(t, second(s.Tx(tx).Swap(t.Context(), beat(r, time.Minute))))
	want := map[string]error{"stale": outbox.ErrFenced, "locked": retrysafe.ErrBusy}
	var acks []outbox.Ack
	for _, d := range list {
		a := outbox.Ack{ID: d.ID, Shard: d.Shard, Group: d.Topic, Kind: outbox.AckDelivered, Tries: 1}
		switch d.Topic {
		case "stale":
			a.Shard.Epoch--
		case "dead":
			a.Kind = outbox.AckDead
		case "kept":
			a.Keep, a.Message = time.Hour, &d.Message
		case "locked":
			settle := done(r, "answer")
			a.Settle = &settle
		}
		acks = append(acks, a)
	}
	acks = append(acks, acks[0])
	ended, err := box.Ack(t.Context(), acks)
	must(t, err)
	for i, e := range ended {
		if name := acks[i].Group; !errors.Is(e.Err, want[name]) {
			t.Errorf("%s: %v, want %v", name, e.Err, want[name])
		}
	}
	must(t, tx.Rollback(t.Context()))
	var left []string
	list, err = box.Due(t.Context(), held.Shards, 10)
	must(t, err)
	for _, d := range list {
		left = append(left, d.Topic)
	}
	if got := strings.Join(left, ", "); got != "stale, locked" {
		t.Errorf("left are %s", got)
	}
	if kept, err := box.Receipts(t.Context(), outbox.ReceiptQuery{Limit: 10}); err != nil || len(kept) != 1 || kept[0].Topic != "kept" {
		t.Errorf("the receipts are %+v, %v", kept, err)
	}
}

// A key that was not settled, of a message that did not end, says why: the worker knows
// whether to try again. What cannot be read now may be read later.
func TestAckSaysWhyAKeyWasNotSettled(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	r, err := s.Create(t.Context(), fresh("k"))
	must(t, err)
	later, err := s.Swap(t.Context(), beat(r, time.Minute))
	must(t, err)
	says := func(w retrysafe.Write, want error, revision int64) {
		t.Helper()
		if got := s.Outbox().WhyRefused(t.Context(), w); !errors.Is(got.Err, want) || got.Record.Revision != revision {
			t.Errorf("%v, %+v; want %v, revision %d", got.Err, got.Record, want, revision)
		}
	}
	missing := done(r, "x")
	missing.Key = "missing"
	says(done(later, "x"), retrysafe.ErrBusy, 0)
	says(done(r, "x"), retrysafe.ErrConflict, later.Revision)
	says(missing, retrysafe.ErrNotFound, 0)
	exec(t, conn, `UPDATE retrysafe_keys SET tail = ''`)
	says(done(later, "x"), retrysafe.ErrUnreadable, 0)
	must(t, s.Close())
	says(done(later, "x"), retrysafe.ErrBusy, 0)
	says(done(later, "x"), pgstore.ErrClosed, 0)
}

package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/inbox"
)

func TestAMessageIsAppliedOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, appliedOnce[pgx.Tx], appliedOnce[*sql.Tx])
}

func appliedOnce[T any](t *testing.T, p *place[T]) {
	b := p.ledger(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for delivery := range 12 { // more than the pool has connections: each one goes back
		is(t, delivery == 0)(b.Once(ctx, payment("k"), p.book))
	}
	for delivery := range 2 { // in a transaction of the caller's it is the same message
		tx, err := p.begin(t.Context())
		must(t, err)
		is(t, false)(b.OnceTx(t.Context(), tx, payment("k"), p.book))
		is(t, delivery == 0)(b.OnceTx(t.Context(), tx, payment("other"), p.book))
		must(t, p.end(tx, true))
	}
	if n := p.count(t, "bookings"); n != 2 {
		t.Errorf("two messages have %d effects", n)
	}
}

// Consumers, tenants and keys do not mix, whatever bytes they are of.
func TestOtherConsumersScopesAndKeysAreOtherMessages(t *testing.T) {
	t.Parallel()
	everywhere(t, othersAreFresh[pgx.Tx], othersAreFresh[*sql.Tx])
}

func othersAreFresh[T any](t *testing.T, p *place[T]) {
	ledger := p.ledger(t)
	mail, err := p.open("mail", nil)
	must(t, err)
	is(t, true)(ledger.Once(t.Context(), payment("k"), p.book))
	is(t, true)(mail.Once(t.Context(), payment("k"), p.book))
	longer, err := p.open("ledgera", nil)
	must(t, err)
	is(t, true)(longer.Once(t.Context(), inbox.Message{Scope: "cme", Key: "k"}, p.book))
	for _, m := range []inbox.Message{
		{Scope: "globex", Key: "k"}, {Scope: "acm", Key: "ek"}, {Scope: "acmek", Key: "k"},
		{Scope: "acme", Key: "K"}, {Scope: "acme", Key: "k "}, {Scope: "acme", Key: "k\x00"},
		{Scope: "acme", Key: "\xff\xfe"}, {Scope: "acme", Key: "caf\u00e9"}, {Scope: "acme", Key: "cafe"}, {Scope: "acme", Key: "'; DROP TABLE bookings"},
		{Scope: strings.Repeat("s", 1024), Key: strings.Repeat("k", 1024)},
	} {
		is(t, true)(ledger.Once(t.Context(), m, p.book))
		is(t, false)(ledger.Once(t.Context(), m, p.book))
	}
}

func TestAnErrorRollsBackTheKeyToo(t *testing.T) {
	t.Parallel()
	everywhere(t, rollsBack[pgx.Tx], rollsBack[*sql.Tx])
}

func rollsBack[T any](t *testing.T, p *place[T]) {
	b := p.ledger(t)
	broken := errors.New("broken")
	fails := func(ctx context.Context, tx T) error { return errors.Join(p.book(ctx, tx), broken) }
	if _, err := b.Once(t.Context(), payment("k"), fails); !errors.Is(err, broken) {
		t.Errorf("%v, want fn's own error", err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = b.Once(t.Context(), payment("k"), func(ctx context.Context, tx T) error {
			must(t, p.book(ctx, tx))
			panic("broken")
		})
		t.Error("a panic was swallowed")
	}()
	// A caller that ignores the error of OnceTx cannot commit its transaction.
	tx, err := p.begin(t.Context())
	must(t, err)
	must(t, p.book(t.Context(), tx))
	_, _ = b.OnceTx(t.Context(), tx, payment("k"), fails)
	if err := p.end(tx, true); err == nil {
		t.Error("a transaction whose message failed can be committed")
	}
	if n := p.count(t, "bookings"); n != 0 {
		t.Errorf("%d effects of deliveries that failed", n)
	}
	is(t, true)(b.Once(t.Context(), payment("k"), p.book))
}

// deafTx is a transaction that cannot be rolled back.
type deafTx struct{ pgx.Tx }

var errDeaf = errors.New("the connection is broken")

func (d deafTx) Rollback(ctx context.Context) error { return errors.Join(d.Tx.Rollback(ctx), errDeaf) }

// An error of the rollback is returned beside fn's own, not instead of it.
func TestAFailedRollbackHidesNoError(t *testing.T) {
	t.Parallel()
	p := pgxPlace(t, postgresURL(t))
	b := p.ledger(t)
	broken := errors.New("broken")
	tx, err := p.begin(t.Context())
	must(t, err)
	fresh, err := b.OnceTx(t.Context(), deafTx{tx}, payment("k"), func(context.Context, pgx.Tx) error { return broken })
	if fresh || !errors.Is(err, broken) || !errors.Is(err, errDeaf) {
		t.Errorf("fresh: %v, %v; want both errors", fresh, err)
	}
}

func TestAnotherPayloadUnderTheKeyIsAnAlarm(t *testing.T) {
	t.Parallel()
	everywhere(t, mismatch[pgx.Tx], mismatch[*sql.Tx])
}

func mismatch[T any](t *testing.T, p *place[T]) {
	b := p.ledger(t)
	is(t, true)(b.Once(t.Context(), withPayload("k", "10 EUR"), p.book))
	is(t, false)(b.Once(t.Context(), withPayload("k", "10 EUR"), p.book))
	is(t, false)(b.Once(t.Context(), payment("k"), p.book)) // nothing to compare
	for _, other := range []string{"90 EUR", ""} {
		if fresh, err := b.Once(t.Context(), withPayload("k", other), p.book); fresh || !errors.Is(err, inbox.ErrMismatch) {
			t.Errorf("%q: %v, %v; want ErrMismatch", other, fresh, err)
		}
	}
	tx, err := p.begin(t.Context())
	must(t, err)
	must(t, p.book(t.Context(), tx))
	_, _ = b.OnceTx(t.Context(), tx, withPayload("k", "90 EUR"), p.book)
	if err := p.end(tx, true); err == nil {
		t.Error("a caller that ignores the mismatch can commit")
	}
	is(t, true)(b.Once(t.Context(), payment("bare"), p.book))
	is(t, false)(b.Once(t.Context(), withPayload("bare", "10 EUR"), p.book))
	is(t, true)(b.Once(t.Context(), withPayload("empty", ""), p.book))
	if _, err := b.Once(t.Context(), withPayload("empty", "10 EUR"), p.book); !errors.Is(err, inbox.ErrMismatch) {
		t.Errorf("an empty payload is one too: %v", err)
	}
	if n := p.count(t, "bookings"); n != 3 {
		t.Errorf("%d effects of three messages", n)
	}
}

func TestAMessageWithoutAKeyIsRefused(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	b := p.ledger(t)
	for _, m := range []inbox.Message{{}, {Scope: "acme"}, {Key: "k"}, {Scope: "acme", Key: strings.Repeat("k", 1025)}, {Scope: strings.Repeat("s", 1025), Key: "k"}} {
		if fresh, err := b.Once(t.Context(), m, p.book); fresh || !errors.Is(err, inbox.ErrMessage) {
			t.Errorf("%+v: %v, %v; want ErrMessage", m, fresh, err)
		}
	}
	if n := p.count(t, "bookings"); n != 0 {
		t.Errorf("%d effects", n)
	}
}

// Deliveries come at once, and some fail. Each message has one effect in the end.
func TestManyDeliveriesAtOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, manyAtOnce[pgx.Tx], manyAtOnce[*sql.Tx])
}

func manyAtOnce[T any](t *testing.T, p *place[T]) {
	const messages, consumers = 40, 6
	b := p.ledger(t)
	broken := errors.New("broken")
	var applied [messages]atomic.Int32
	var all sync.WaitGroup
	for range consumers {
		all.Go(func() {
			for _, i := range rand.Perm(messages) { // each consumer gets all of them, in an order of its own
				for {
					fresh, err := b.Once(t.Context(), withPayload(fmt.Sprint(i), "same"), func(ctx context.Context, tx T) error {
						if err := p.exec(ctx, tx, fmt.Sprintf(`INSERT INTO bookings VALUES ('%d')`, i)); err != nil {
							return err
						}
						if rand.IntN(3) == 0 {
							return broken
						}
						return nil
					})
					if fresh {
						applied[i].Add(1)
					}
					if err == nil {
						break
					}
					if !errors.Is(err, broken) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	for i := range applied {
		if n := applied[i].Load(); n != 1 {
			t.Errorf("message %d was fresh %d times", i, n)
		}
	}
	if all, distinct := p.count(t, "bookings"), p.count(t, "(SELECT DISTINCT what FROM bookings) AS counted"); all != messages || distinct != messages {
		t.Errorf("%d effects, of %d messages; want %d of each", all, distinct, messages)
	}
}

func TestAnInboxNeedsAConsumer(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	for name, opts := range map[string]*inbox.Options{"": nil, "\xff": nil, strings.Repeat("c", 1025): nil, "a": {Keep: -1}, "b": {Keep: 1}, "c": {Schema: "s"}} {
		if _, err := p.open(name, opts); err == nil {
			t.Errorf("%q with %+v is accepted", name, opts)
		}
	}
	if _, err := inbox.PGX(nil, "ledger", nil); err == nil {
		t.Error("no pool is accepted")
	}
	if _, err := inbox.Postgres(nil, "ledger", nil); err == nil {
		t.Error("no database is accepted")
	}
}

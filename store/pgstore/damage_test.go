package pgstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sealed"
)

// refusesUnreadable makes sure that no step and no engine takes what is stored
// under the key for anything, and that nothing runs. E may stand before the store.
func refusesUnreadable(t *testing.T, what string, b *bank, key string) {
	t.Helper()
	ctx, ref := t.Context(), call(key).Ref
	for step, err := range map[string]error{
		"Load":   second(b.store.Load(ctx, ref)),
		"Create": second(b.store.Create(ctx, fresh(key))),
		"Swap":   second(b.store.Swap(ctx, fresh(key))),
	} {
		if !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Errorf("%s: %s = %v, want it unreadable", what, step, err)
		}
	}
	tx, own, err := b.store.BeginTx(ctx)
	must(t, err)
	if _, err := tx.Reserve(ctx, ref); !errors.Is(err, retrysafe.ErrUnreadable) {
		t.Errorf("%s: Reserve = %v, want it unreadable", what, err)
	}
	must(t, own.Rollback(ctx))
	neverRuns(t, what, b.Engine, b.store, key)
}

// neverRuns makes sure that the key is refused as unreadable, however it is asked
// for.
func neverRuns(t *testing.T, what string, e *retrysafe.Engine, s *pgstore.Store, key string) {
	t.Helper()
	ran := false
	_, err := e.Do(t.Context(), call(key), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		ran = true
		return retrysafe.Result{Status: 201}, nil
	})
	if !errors.Is(err, retrysafe.ErrUnreadable) || ran {
		t.Errorf("%s: Do = %v, ran: %t", what, err, ran)
	}
	if s == nil {
		return
	}
	_, err = retrysafe.DoTx(t.Context(), e, s, call(key), func(context.Context, pgx.Tx) (retrysafe.Result, error) {
		ran = true
		return retrysafe.Result{Status: 201}, nil
	})
	if !errors.Is(err, retrysafe.ErrUnreadable) || ran {
		t.Errorf("%s: DoTx = %v, ran: %t", what, err, ran)
	}
}

// TestW41_DamagedRowIsRefused: a bit that has flipped in what was stored is
// noticed; the key is refused and not run, its neighbours are as ever, and a list
// shows it to an operator.
func TestW41_DamagedRowIsRefused(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	b := newBank(t, url, txPolicy)
	for what, damage := range map[string]string{
		"head, first byte":       `head = set_byte(head, 0, 3)`,
		"head, a bit":            `head = set_bit(head, 100, 1 - get_bit(head, 100))`,
		"head, another bit":      `head = set_bit(head, 8 * length(head) - 50, 1 - get_bit(head, 8 * length(head) - 50))`,
		"head, its checksum":     `head = set_bit(head, 8 * length(head) - 1, 1 - get_bit(head, 8 * length(head) - 1))`,
		"head, cut off":          `head = substring(head FOR length(head) - 1)`,
		"head, gone":             `head = ''`,
		"tail, a bit":            `tail = set_bit(tail, 20, 1 - get_bit(tail, 20))`,
		"tail, its last bit":     `tail = set_bit(tail, 8 * length(tail) - 1, 1 - get_bit(tail, 8 * length(tail) - 1))`,
		"tail, gone":             `tail = ''`,
		"state, retryable":       `state = 4`,
		"state, expired":         `state = 6`,
		"state, in flight":       `state = 2`,
		"state, none there is":   `state = 77`,
		"state, a bit too many":  `state = state + 256`,
		"head of another row":    `head = (SELECT head FROM retrysafe_keys WHERE id <> k.id AND state = 3 LIMIT 1)`,
		"checkpoint, a bit":      `checkpoint = set_bit(checkpoint, 10, 1 - get_bit(checkpoint, 10))`,
		"checkpoint, cut off":    `checkpoint = substring(checkpoint FOR 3)`,
		"tail of another's kind": `tail = head`,
	} {
		must(t, second(b.do(t.Context(), "a neighbour of "+what)))
		r := fresh(what)
		r.Checkpoint = retrysafe.Checkpoint{Phase: "charged", Data: []byte("ch_4711")}
		stored, err := b.store.Create(t.Context(), r)
		must(t, err)
		must(t, second(b.store.Swap(t.Context(), done(stored, "the answer"))))
		exec(t, b.conn, `UPDATE retrysafe_keys k SET `+damage+` WHERE id = $1`, pgstore.ID(r.Ref))
		refusesUnreadable(t, what, b, what)
		all, err := b.store.List(t.Context(), retrysafe.Query{Limit: 1000})
		must(t, err)
		unreadable := 0
		for _, r := range all {
			if r.Version == 0 {
				unreadable++
				if r.Reason == "" || !strings.Contains(r.Scope, "unreadable") || r.Result != nil {
					t.Errorf("%s is listed as %+v", what, r)
				}
			}
		}
		if unreadable != 1 {
			t.Errorf("%s: %d records are listed as unreadable", what, unreadable)
		}
		if out, err := b.do(t.Context(), "a neighbour of "+what); err != nil || !out.Replayed {
			t.Errorf("%s: its neighbour gets %+v, %v", what, out, err)
		}
		exec(t, b.conn, `DELETE FROM retrysafe_keys WHERE id = $1`, pgstore.ID(r.Ref))
	}
}

// Unreadable rows do not end a list half-way, and each is listed once.
func TestListGoesOnBehindUnreadableRows(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	for i := range 30 {
		s.put(t, fmt.Sprint(i), retrysafe.StateCompleted, 1)
	}
	exec(t, s.conn, `UPDATE retrysafe_keys SET head = '' WHERE get_byte(uuid_send(id), 15) % 2 = 0`)
	bad := one[int](t, s.conn, `SELECT count(*) FROM retrysafe_keys WHERE head = ''`)
	for _, q := range []retrysafe.Query{{}, {Due: true}} {
		seen, unreadable := map[retrysafe.Ref]bool{}, 0
		q.Limit = 4
		for {
			page, err := s.List(t.Context(), q)
			must(t, err)
			for _, r := range page {
				if seen[r.Ref] {
					t.Errorf("%q is listed twice", r.Ref)
				}
				if seen[r.Ref] = true; r.Version == 0 {
					unreadable++
				}
			}
			if len(page) < q.Limit {
				break
			}
			q.After = page[len(page)-1].Ref
		}
		if len(seen) != 30 || unreadable != bad {
			t.Errorf("%d are listed, %d of them unreadable; want 30 and %d", len(seen), unreadable, bad)
		}
	}
}

// TestW59_RowOfANewerVersionIsRefused: during a rolling upgrade the old version
// meets rows of the new one. It refuses them and runs nothing, whether it is the
// layout that it does not know or what the record means; both go on with their own.
func TestW59_RowOfANewerVersionIsRefused(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	b := newBank(t, url, txPolicy)
	must(t, second(b.do(t.Context(), "of this version")))

	for what, sql := range map[string]string{
		"a newer head": `UPDATE retrysafe_keys SET head = set_byte(head, 0, 32 | get_byte(head, 0) & 15) WHERE id = $1`,
		"a newer tail": `UPDATE retrysafe_keys SET tail = set_byte(tail, 0, 32 | get_byte(tail, 0) & 15) WHERE id = $1`,
	} {
		must(t, second(b.do(t.Context(), what)))
		exec(t, b.conn, sql, pgstore.ID(call(what).Ref))
		refusesUnreadable(t, what, b, what)
		if _, err := b.store.Load(t.Context(), call(what).Ref); !strings.Contains(err.Error(), "upgrade the program") {
			t.Errorf("%s: %v", what, err)
		}
	}

	// The store keeps a record of a newer version as it is; the engine refuses it.
	for state := retrysafe.StateAccepted; state <= retrysafe.StateExpired; state++ {
		r := fresh("a newer record, " + state.String())
		r.State, r.Version = state, retrysafe.RecordVersion+1
		if state == retrysafe.StateCompleted {
			r.Result = &retrysafe.Result{Status: 299}
		}
		stored, err := b.store.Create(t.Context(), r)
		must(t, err)
		neverRuns(t, r.Key, b.Engine, b.store, r.Key)
		// A process of the newer version goes on beside us.
		w := beat(stored, stored.Retain)
		w.Reason = "by the newer version"
		after, err := b.store.Swap(t.Context(), w)
		if err != nil || after.Version != retrysafe.RecordVersion+1 {
			t.Errorf("%s: its own version gets %+v, %v", r.Key, after, err)
		}
	}
	if out, err := b.do(t.Context(), "of this version"); err != nil || !out.Replayed {
		t.Errorf("what is of this version: %+v, %v", out, err)
	}
	if out, err := b.do(t.Context(), "new of this version"); err != nil || out.Replayed {
		t.Errorf("what is new: %+v, %v", out, err)
	}
	if n := one[int](t, b.conn, `SELECT count(*) FROM effects`); n != 4 {
		t.Errorf("%d effects, want four", n)
	}
}

// TestW61_SealedWithAMissingKeyIsRefused: answers that cannot be opened, because
// the key is not there, are refused and not run.
func TestW61_SealedWithAMissingKeyIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.Shared(t), nil)
	index := bytes.Repeat([]byte("i"), sealed.KeySize)
	one, two := bytes.Repeat([]byte("1"), sealed.KeySize), bytes.Repeat([]byte("2"), sealed.KeySize)
	under := func(current uint32, keys map[uint32][]byte) *retrysafe.Engine {
		ring, err := sealed.NewKeyring(index, current, keys)
		must(t, err)
		store, err := sealed.New(s, ring)
		must(t, err)
		e, err := retrysafe.New(store, unhurried)
		must(t, err)
		return e
	}
	do := func(e *retrysafe.Engine) (retrysafe.Outcome, error) {
		return e.Do(t.Context(), call("k"), func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: 201, Body: []byte("paid")}, nil
		})
	}
	must(t, second(do(under(1, map[uint32][]byte{1: one}))))
	neverRuns(t, "without the key", under(2, map[uint32][]byte{2: two}), nil, "k")
	neverRuns(t, "with another of its number", under(1, map[uint32][]byte{1: two}), nil, "k")
	if out, err := do(under(2, map[uint32][]byte{1: one, 2: two})); err != nil || !out.Replayed || string(out.Body) != "paid" {
		t.Errorf("with the key back: %+v, %v", out, err)
	}
}

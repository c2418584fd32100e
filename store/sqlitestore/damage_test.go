package sqlitestore_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// refusesUnreadable makes sure that no step takes what is stored under the key for
// anything, and that it does not run.
func refusesUnreadable(t *testing.T, what string, s *sqlitestore.Store, key string) {
	t.Helper()
	ctx, ref := t.Context(), keyed(key).Ref
	shown := func(r retrysafe.Record, err error) error { // also the record of another key is not shown
		if !reflect.DeepEqual(r, retrysafe.Record{ReadAt: r.ReadAt}) {
			t.Errorf("%s: a step returns %+v", what, r)
		}
		return err
	}
	for step, err := range map[string]error{
		"Load":   shown(s.Load(ctx, ref)),
		"Create": shown(s.Create(ctx, fresh(key))),
		"Swap":   shown(s.Swap(ctx, fresh(key))),
	} {
		if !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Errorf("%s: %s = %v, want it unreadable", what, step, err)
		}
	}
	tx, err := s.DB().BeginTx(ctx, nil)
	must(t, err)
	if _, err := s.Tx(tx).Reserve(ctx, ref); !errors.Is(err, retrysafe.ErrUnreadable) {
		t.Errorf("%s: Reserve = %v, want it unreadable", what, err)
	}
	if _, err := s.Tx(tx).Swap(ctx, fresh(key)); !errors.Is(err, retrysafe.ErrUnreadable) || tx.Commit() == nil {
		t.Errorf("%s: Swap in a transaction = %v, want it unreadable, and no commit", what, err)
	}
	neverRuns(t, what, s, key)
}

func neverRuns(t *testing.T, what string, s *sqlitestore.Store, key string) {
	t.Helper()
	e, err := retrysafe.New(s, unhurried)
	must(t, err)
	runs := 0
	if _, err := pays(t, e, key, &runs); !errors.Is(err, retrysafe.ErrUnreadable) || runs != 0 {
		t.Errorf("%s: Do = %v, %d runs", what, err, runs)
	}
}

// TestW41_DamagedRowIsRefused: a bit that has flipped in what was stored is
// noticed. The key is refused and neither run nor purged, its neighbours are as
// ever, and a list shows it to an operator.
func TestW41_DamagedRowIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	put(t, s, "neighbour")
	due := done(fresh("due").Record, "an answer")
	due.Term = time.Microsecond
	must(t, second(s.Create(t.Context(), due)))
	rec := func(key string) []byte {
		return one[[]byte](t, s.DB(), `SELECT rec FROM retrysafe_keys WHERE id = ?`, sqlitestore.ID(keyed(key).Ref))
	}
	others := rec("due")
	if n, err := s.Purge(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("Purge = %d, %v", n, err)
	}
	damage := map[string]func(b []byte) []byte{
		"cut off":           func(b []byte) []byte { return b[:len(b)-1] },
		"cut to a byte":     func(b []byte) []byte { return b[:1] },
		"gone":              func([]byte) []byte { return []byte{} },
		"one byte too many": func(b []byte) []byte { return append(b, 0) },
		"another's":         func([]byte) []byte { return others },
		"zeroes":            func(b []byte) []byte { return make([]byte, len(b)) },
	}
	for i := range 128 {
		damage[fmt.Sprint("bit ", i)] = func(b []byte) []byte {
			bit := i * 8 * len(b) / 128
			b[bit/8] ^= 1 << (i % 8)
			return b
		}
	}
	for what, change := range damage {
		// Its time has come, so that only the damage keeps it from being purged.
		r := done(fresh(what).Record, "the answer")
		r.Term = time.Microsecond
		must(t, second(s.Create(t.Context(), r)))
		whole := rec(what)
		exec(t, s.DB(), `UPDATE retrysafe_keys SET rec = ? WHERE id = ?`, change([]byte(string(whole))), sqlitestore.ID(r.Ref))
		refusesUnreadable(t, what, s, what)
		if n, err := s.Purge(t.Context(), 10); n != 0 || err != nil {
			t.Errorf("%s: Purge = %d, %v", what, n, err)
		}
		for _, q := range []retrysafe.Query{{}, {Due: true}} {
			unreadable := 0
			for _, r := range pages(t, s, q) {
				if r.Version == 0 {
					unreadable++
					if r.Reason == "" || !strings.Contains(r.Scope, "unreadable") || r.Result != nil {
						t.Errorf("%s is listed as %+v", what, r)
					}
				}
			}
			if unreadable != 1 {
				t.Errorf("%s: %d records are listed as unreadable, due %t", what, unreadable, q.Due)
			}
		}
		if got, err := s.Load(t.Context(), keyed("neighbour").Ref); err != nil || string(got.Result.Body) != "the answer of neighbour" {
			t.Errorf("%s: its neighbour is %+v, %v", what, got, err)
		}
		exec(t, s.DB(), `UPDATE retrysafe_keys SET rec = ? WHERE id = ?`, whole, sqlitestore.ID(r.Ref))
		if n, err := s.Purge(t.Context(), 10); n != 1 || err != nil {
			t.Errorf("%s, repaired: Purge = %d, %v", what, n, err)
		}
	}
}

// A damaged column beside the record makes no key forgotten and no operation run:
// what counts is the record.
func TestW41_DamagedColumnsForgetNothing(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	for what, set := range map[string]string{
		"final":           `due = 3 << 56 | deadline`,
		"retryable":       `due = 4 << 56 | deadline`,
		"final and due":   `due = 3 << 56 | 1`,
		"expired and due": `due = 6 << 56 | 1`,
	} {
		flying, err := s.Create(t.Context(), fresh(what))
		must(t, err)
		exec(t, s.DB(), `UPDATE retrysafe_keys SET `+set+` WHERE id = ?`, sqlitestore.ID(flying.Ref))
		if n, err := s.Purge(t.Context(), 10); n != 0 || err != nil {
			t.Errorf("%s: Purge = %d, %v", what, n, err)
		}
		if all := pages(t, s, retrysafe.Query{}); len(all) != 1 || all[0].Version != 0 {
			t.Errorf("%s: it is listed as %+v", what, all)
		}
		if got, err := s.Create(t.Context(), another(what)); !errors.Is(err, retrysafe.ErrExists) || got.State != retrysafe.StateInProgress {
			t.Errorf("%s: Create = %v, %v", what, got.State, err)
		}
		// The next step of its owner puts it right.
		must(t, second(s.Swap(t.Context(), done(flying, "landed"))))
		if all := pages(t, s, retrysafe.Query{}); len(all) != 1 || all[0].State != retrysafe.StateCompleted {
			t.Errorf("%s: it is listed as %+v afterwards", what, all)
		}
		exec(t, s.DB(), `DELETE FROM retrysafe_keys`)
	}

	// An answer is kept for as long as its record says.
	put(t, s, "answered")
	exec(t, s.DB(), `UPDATE retrysafe_keys SET due = 3 << 56 | 1`)
	if n, err := s.Purge(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("an answer whose time has not come: Purge = %d, %v", n, err)
	}
	must(t, second(s.Load(t.Context(), keyed("answered").Ref)))
	// A row that has another key's record is not listed as that key.
	put(t, s, "another")
	exec(t, s.DB(), `UPDATE retrysafe_keys SET (due, rec) = (SELECT due, rec FROM retrysafe_keys WHERE id = ?)`, sqlitestore.ID(keyed("another").Ref))
	unreadable := 0
	for _, r := range pages(t, s, retrysafe.Query{}) {
		if r.Version == 0 {
			unreadable++
		}
	}
	if unreadable != 1 {
		t.Errorf("%d rows of two are listed as unreadable, want the one with another key's record", unreadable)
	}
}

// Unreadable rows do not end a list half-way, and each is listed once; a purge goes
// on behind them.
func TestListAndPurgeGoOnBehindUnreadableRows(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	for i := range 30 {
		r := done(fresh(fmt.Sprint(i)).Record, "an answer")
		r.Term = time.Microsecond
		must(t, second(s.Create(t.Context(), r)))
	}
	exec(t, s.DB(), `UPDATE retrysafe_keys SET rec = x'' WHERE row % 3 = 1`)
	for _, q := range []retrysafe.Query{{Limit: 4}, {Limit: 4, Due: true}, {Limit: 1}} {
		unreadable, all := 0, pages(t, s, q)
		for _, r := range all {
			if r.Version == 0 {
				unreadable++
			}
		}
		if len(all) != 30 || unreadable != 10 {
			t.Errorf("%d are listed, %d of them unreadable; want 30 and 10", len(all), unreadable)
		}
	}
	for _, want := range []int{7, 7, 6, 0} {
		if n, err := s.Purge(t.Context(), 7); n != want || err != nil {
			t.Errorf("Purge = %d, %v, want %d", n, err, want)
		}
	}
}

// TestW59_RecordOfANewerVersionIsRefused: during a rolling upgrade the old version
// meets records of the new one. It refuses them and runs nothing, whether it is
// the encoding that it does not know or what the record means; both go on with
// their own.
func TestW59_RecordOfANewerVersionIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "keys.db"))
	put(t, s, "of this version")

	put(t, s, "of a newer encoding")
	exec(t, s.DB(), `UPDATE retrysafe_keys SET rec = x'02' || substr(rec, 2) WHERE id = ?`, sqlitestore.ID(keyed("of a newer encoding").Ref))
	refusesUnreadable(t, "a newer encoding", s, "of a newer encoding")
	if _, err := s.Load(t.Context(), keyed("of a newer encoding").Ref); !strings.Contains(err.Error(), "upgrade the program") {
		t.Errorf("it says %v", err)
	}

	// The store keeps a record of a newer version as it is; the engine refuses it.
	for state := retrysafe.StateAccepted; state <= retrysafe.StateExpired; state++ {
		r := fresh("a newer record, " + state.String())
		r.State, r.Version = state, retrysafe.RecordVersion+1
		if state == retrysafe.StateCompleted {
			r.Result = &retrysafe.Result{Status: 299}
		}
		stored, err := s.Create(t.Context(), r)
		must(t, err)
		neverRuns(t, r.Key, s, r.Key)
		// A process of the newer version goes on beside us.
		update := stored.Update()
		update.Reason, update.Term = "by the newer version", stored.Retain
		if after, err := s.Swap(t.Context(), update); err != nil || after.Version != retrysafe.RecordVersion+1 {
			t.Errorf("%s: its own version gets %+v, %v", r.Key, after, err)
		}
	}
	e, err := retrysafe.New(s, unhurried)
	must(t, err)
	runs := 0
	if out, err := pays(t, e, "of this version", &runs); err != nil || !out.Replayed {
		t.Errorf("what is of this version: %+v, %v", out, err)
	}
	if out, err := pays(t, e, "new of this version", &runs); err != nil || out.Replayed || runs != 1 {
		t.Errorf("what is new: %+v, %v", out, err)
	}
}

package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/crashtest"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// nextSchema is what a next version may do to the schema while this one works.
const nextSchema = `-- works from 5
ALTER TABLE retrysafe_keys ADD COLUMN note TEXT;
ALTER TABLE retrysafe_keys ADD COLUMN counted INTEGER NOT NULL DEFAULT 7;
CREATE INDEX retrysafe_keys_note ON retrysafe_keys (note);
`

// openMember opens the file as this version does, or as the next one would.
func openMember(ctx context.Context, path string, next bool) (*crashtest.Member, error) {
	db, err := sql.Open("sqlite", patientDSN(path))
	if err != nil {
		return nil, err
	}
	var note func(context.Context, retrysafe.Ref) error
	if next {
		if err := sqlitestore.MigrateOn(ctx, db, nextSchema); err != nil {
			return nil, err
		}
		note = func(ctx context.Context, ref retrysafe.Ref) error {
			_, err := db.ExecContext(ctx, `UPDATE retrysafe_keys SET note = 'seen' WHERE id = ? AND note IS NULL`, sqlitestore.ID(ref))
			return err
		}
	}
	s, err := sqlitestore.New(ctx, db, nil)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	m, err := crashtest.NewMember(s, db, func(ctx context.Context, tx *sql.Tx, statement string) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	}, note)
	if err != nil {
		return nil, err
	}
	m.Close = func() error { return errors.Join(s.Close(), db.Close()) }
	return m, nil
}

// TestW59W60_RollingUpgrade: this version and a next one side by side, then back to
// this one alone, and forward again: each key has one effect and one answer.
func TestW59W60_RollingUpgrade(t *testing.T) {
	t.Parallel()
	if crashtest.RunMember(t, openMember) {
		return
	}
	path := filepath.Join(t.TempDir(), "keys.db")
	for _, wrong := range crashtest.Upgrade(t, openMember, path) {
		t.Error(wrong)
	}
	s := open(t, path) // this version
	if n := one[int](t, s.DB(), `SELECT count(*) FROM retrysafe_keys WHERE note = 'seen' AND counted = 7`); n != 400 {
		t.Errorf("the next version has noted %d keys of 400; it was not at work", n)
	}
	// What the next version writes once nothing of this one is left is refused by it.
	r := fresh("of the next version")
	r.State, r.Version = retrysafe.StateRetryable, retrysafe.RecordVersion+1
	must(t, second(s.Create(t.Context(), r)))
	e, err := retrysafe.New(s, unhurried)
	must(t, err)
	runs := 0
	if _, err := pays(t, e, r.Key, &runs); !errors.Is(err, retrysafe.ErrUnreadable) || runs != 0 {
		t.Errorf("a record of the next version: %v, %d runs", err, runs)
	}
}

// A next version that is not careful is found out.
func TestRollingUpgradeFindsASecondEffect(t *testing.T) {
	t.Parallel()
	careless := func(ctx context.Context, path string, next bool) (*crashtest.Member, error) {
		m, err := openMember(ctx, path, next)
		if err != nil || !next {
			return m, err
		}
		db, err := sql.Open("sqlite", patientDSN(path))
		if err != nil {
			return nil, err
		}
		pay := m.Pay
		m.Pay = func(ctx context.Context, key, by string) (retrysafe.Outcome, error) {
			// It takes records of the old version for none.
			if _, err := db.ExecContext(ctx, `DELETE FROM retrysafe_keys WHERE note IS NULL AND id = ?`,
				sqlitestore.ID(retrysafe.Ref{Scope: "tenant", Key: key})); err != nil {
				return retrysafe.Outcome{}, err
			}
			return pay(ctx, key, by)
		}
		closing := m.Close
		m.Close = func() error { return errors.Join(closing(), db.Close()) }
		return m, nil
	}
	if crashtest.RunMember(t, careless) {
		return
	}
	if wrong := crashtest.Upgrade(t, careless, filepath.Join(t.TempDir(), "keys.db")); len(wrong) == 0 {
		t.Error("a next version that forgets what this one answered is not found out")
	} else {
		t.Logf("found: %d, such as %s", len(wrong), wrong[0])
	}
}

// What a migration says of older programs is what they go by: without a word they are
// refused, and one that needs a newer program than this is not outvoted by others.
func TestW60_SchemaSaysWhoMayWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more []string
		ok   bool
	}{
		"says nothing":              {[]string{`SELECT 1;`}, false},
		"works from this one":       {[]string{"-- works from 5\nSELECT 1;"}, true},
		"works from an earlier one": {[]string{"-- works from 1\nSELECT 1;"}, true},
		"works from a later one":    {[]string{"-- works from 6\nSELECT 1;"}, false},
		"two that work":             {[]string{"-- works from 5\nSELECT 1;", "-- works from 1\nSELECT 1;"}, true},
		"the first says nothing":    {[]string{"SELECT 1;", "-- works from 5\nSELECT 1;"}, false},
		"the second says nothing":   {[]string{"-- works from 5\nSELECT 1;", "SELECT 1;"}, false},
		"the second needs the next": {[]string{"-- works from 5\nSELECT 1;", "-- works from 6\nSELECT 1;"}, false},
	} {
		path := filepath.Join(t.TempDir(), "keys.db")
		before := open(t, path)
		must(t, sqlitestore.MigrateOn(t.Context(), before.DB(), c.more...))
		s, err := sqlitestore.Open(t.Context(), path, nil)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, sqlitestore.ErrNewerSchema) {
			t.Errorf("%s: Open = %v", name, err)
		}
		if err == nil {
			put(t, s, "k")
			must(t, s.Close())
		}
		if status, err := sqlitestore.ReadStatus(t.Context(), path); err != nil || status.Version != 5+len(c.more) || status.Newest != 5 {
			t.Errorf("%s: the status is %+v, %v", name, status, err)
		}
	}
}

// A file from before the schema could say so is migrated as ever.
func TestVersionTableOfTheFirstFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.db")
	s := open(t, path)
	put(t, s, "k")
	exec(t, s.DB(), `ALTER TABLE retrysafe_schema DROP COLUMN oldest`)
	open(t, path)
	must(t, sqlitestore.MigrateOn(t.Context(), s.DB(), nextSchema))
	if got := one[int](t, s.DB(), `SELECT oldest FROM retrysafe_schema WHERE version = 6`); got != 5 {
		t.Errorf("it works from %d", got)
	}
	if r, err := open(t, path).Load(t.Context(), keyed("k").Ref); err != nil || r.State != retrysafe.StateCompleted {
		t.Errorf("%+v, %v", r, err)
	}
}

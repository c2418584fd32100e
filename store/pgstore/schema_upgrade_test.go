package pgstore_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/crashtest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// nextSchema is what a next version may do to the schema while this one works.
const nextSchema = `-- works from 5
ALTER TABLE {keys} ADD COLUMN note text;
ALTER TABLE {keys} ADD COLUMN counted integer NOT NULL DEFAULT 7;
CREATE INDEX retrysafe_keys_note ON {keys} (note);
`

// nextMigrations are those of this version and one more.
func nextMigrations() (fstest.MapFS, error) {
	all := fstest.MapFS{"migrations/0006_note.sql": {Data: []byte(nextSchema)}}
	disk := os.DirFS(".")
	names, err := fs.Glob(disk, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(disk, name)
		if err != nil {
			return nil, err
		}
		all[path.Clean(name)] = &fstest.MapFile{Data: text}
	}
	return all, nil
}

// openMember opens the database as this version does, or as the next one would; that
// changes this process for good.
func openMember(ctx context.Context, url string, next bool) (*crashtest.Member, error) {
	if next {
		all, err := nextMigrations()
		if err != nil {
			return nil, err
		}
		pgstore.SetMigrations(all)
	}
	s, err := pgstore.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	var note func(context.Context, retrysafe.Ref) error
	if next {
		note = func(ctx context.Context, ref retrysafe.Ref) error {
			_, err := s.Pool().Exec(ctx, `UPDATE retrysafe_keys SET note = 'seen' WHERE id = $1 AND note IS NULL`, pgstore.ID(ref))
			return err
		}
	}
	db := stdlib.OpenDBFromPool(s.Pool())
	m, err := crashtest.NewMember(s, db, func(ctx context.Context, tx pgx.Tx, statement string) error {
		_, err := tx.Exec(ctx, statement)
		return err
	}, note)
	if err != nil {
		return nil, err
	}
	m.Close = func() error { return errors.Join(db.Close(), s.Close()) }
	return m, nil
}

// TestW59W60_RollingUpgrade: this version and a next one side by side, then back to
// this one alone, and forward again: each key has one effect and one answer.
func TestW59W60_RollingUpgrade(t *testing.T) {
	t.Parallel()
	if crashtest.RunMember(t, openMember) {
		return
	}
	url := testservers.Shared(t)
	for _, wrong := range crashtest.Upgrade(t, openMember, url) {
		t.Error(wrong)
	}
	b := newBank(t, url, txPolicy) // this version
	if n := one[int](t, b.conn, `SELECT count(*) FROM retrysafe_keys WHERE note = 'seen' AND counted = 7`); n != 400 {
		t.Errorf("the next version has noted %d keys of 400; it was not at work", n)
	}
	// What the next version writes once nothing of this one is left is refused by it.
	r := fresh("of the next version")
	r.State, r.Version = retrysafe.StateRetryable, retrysafe.RecordVersion+1
	must(t, second(b.store.Create(t.Context(), r)))
	neverRuns(t, "a record of the next version", b.Engine, b.store, r.Key)
}

// What a migration says of older programs is what they go by: without a word they are
// refused, and one that needs a newer program than this is not outvoted by others.
func TestW60_SchemaSaysWhoMayWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows string
		ok   bool
	}{
		"says nothing":              {`(6, NULL)`, false},
		"works from this one":       {`(6, 5)`, true},
		"works from an earlier one": {`(6, 1)`, true},
		"works from a later one":    {`(6, 6)`, false},
		"two that work":             {`(6, 5), (7, 1)`, true},
		"the first says nothing":    {`(6, NULL), (7, 5)`, false},
		"the second says nothing":   {`(6, 5), (7, NULL)`, false},
		"the second needs the next": {`(6, 5), (7, 6)`, false},
	} {
		url := testservers.Shared(t)
		open(t, url, nil)
		conn := connect(t, url)
		exec(t, conn, `INSERT INTO retrysafe_schema (version, oldest) VALUES `+c.rows)
		before := one[string](t, conn, catalogue)
		s, err := pgstore.Open(t.Context(), url, nil)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, pgstore.ErrNewerSchema) {
			t.Errorf("%s: Open = %v", name, err)
		}
		if err == nil {
			works(t, s)
			must(t, s.Close())
		}
		if after := one[string](t, conn, catalogue); after != before {
			t.Errorf("%s: something was changed:\n%s\n%s", name, before, after)
		}
	}
}

// A database from before the schema could say so is migrated as ever.
func TestVersionTableOfTheFirstDatabases(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	s, conn := open(t, url, nil), connect(t, url)
	works(t, s)
	exec(t, conn, `ALTER TABLE retrysafe_schema DROP COLUMN oldest`)
	works(t, open(t, url, nil))
	exec(t, conn, `DELETE FROM retrysafe_schema WHERE version >= 2`) // as it was before the outbox
	exec(t, conn, `DROP TABLE retrysafe_outbox, retrysafe_dead, retrysafe_shards, retrysafe_workers, retrysafe_receipts, retrysafe_changes, retrysafe_last_change`)
	exec(t, conn, `DROP VIEW retrysafe_keys_readable`)
	exec(t, conn, `DROP FUNCTION retrysafe_fields_of, retrysafe_text_of, retrysafe_time_of`)
	works(t, open(t, url, nil))
	if got := one[string](t, conn, `SELECT string_agg(concat_ws(' ', version, coalesce(oldest, 0)), ', ' ORDER BY version) FROM retrysafe_schema`); got != "1 0, 2 0, 3 2, 4 2, 5 2" {
		t.Errorf("the versions are %s", got)
	}
	exec(t, conn, `INSERT INTO retrysafe_schema (version) VALUES (6)`)
	if _, err := pgstore.Open(t.Context(), url, nil); !errors.Is(err, pgstore.ErrNewerSchema) {
		t.Errorf("Open = %v", err)
	}
}

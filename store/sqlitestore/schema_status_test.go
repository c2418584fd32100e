package sqlitestore_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestStatusOfAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?%41.db")
	status := func() sqlitestore.SchemaStatus {
		t.Helper()
		got, err := sqlitestore.ReadStatus(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if _, err := sqlitestore.ReadStatus(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil { // as SQLite has an empty database
		t.Fatal(err)
	}
	got := status()
	newest := got.Newest
	if got.Version != 0 || newest < 2 || len(got.Pending) != newest || !strings.HasPrefix(got.Pending[0], "0001_") {
		t.Errorf("an empty database: %+v", got)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		t.Errorf("ReadStatus has changed the file: %v, %v", info.Size(), err)
	}

	s := open(t, path)
	for i := range 3 {
		w := retrysafe.Write{Record: retrysafe.Record{Ref: retrysafe.Ref{Scope: "s", Key: fmt.Sprint(i)}, Owner: retrysafe.Owner{1}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1}}
		if _, err := s.Create(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	if got := status(); got.Version != newest || len(got.Pending) != 0 || got.Keys != 3 || got.Estimated {
		t.Errorf("three keys: %+v", got)
	}

	exec(t, s.DB(), `INSERT INTO retrysafe_schema (version) VALUES (99)`)
	if got := status(); got.Version != 99 || got.Newest != newest || len(got.Pending) != 0 || got.Keys != 3 {
		t.Errorf("a newer schema: %+v", got)
	}
	exec(t, s.DB(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100001)
		INSERT INTO retrysafe_keys (id, due, rec) SELECT CAST(i AS BLOB), 3 << 56, x'' FROM n`)
	if got := status(); got.Keys != 100_001 || !got.Estimated {
		t.Errorf("many keys: %+v", got)
	}
}

func TestStatusOfSomethingElse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlitestore.ReadStatus(t.Context(), path); err == nil || !strings.Contains(err.Error(), "no SQLite database") {
		t.Errorf("a text file: %v", err)
	}
}

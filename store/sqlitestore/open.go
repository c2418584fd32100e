package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite", in pure Go
)

const maxConns = 16

// Open opens or creates the database file at path and returns a store over it.
// Opts may be nil. Close it when done.
func Open(ctx context.Context, path string, opts *Options) (*Store, error) {
	if path == "" {
		return nil, errors.New("sqlitestore: the path of the database file is empty")
	}
	if dir := filepath.Dir(path); dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("sqlitestore: %s is no folder that a database file can be made in", dir)
		}
	}
	db, err := sql.Open("sqlite", DSN(path))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	// Connections are costly to open, and the default would close all but two of
	// them after each burst. More than this many do not read any faster.
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	s, err := New(ctx, db, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), db.Close())
	}
	return s, nil
}

// DSN returns the data source name with which Open opens a file, for programs
// that open it themselves to share transactions: write-ahead log, a flush for
// each commit, five seconds of patience with other writers, and transactions
// that take the write lock when they begin.
func DSN(path string) string {
	q := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(5000)", "foreign_keys(ON)"}, "_txlock": {"immediate"}}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// DB returns the database, for transactions that the store is to join.
func (s *Store) DB() *sql.DB { return s.db }

// Close closes the database. No step may be under way.
func (s *Store) Close() error { return errors.Join(s.reads.Close(), s.writer.close(), s.db.Close()) }

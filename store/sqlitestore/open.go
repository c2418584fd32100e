package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite", in pure Go
)

const (
	maxConns    = 16
	busyTimeout = 5 * time.Second
)

// Open opens the database file at path and returns a store over it. If the file does not
// exist, Open creates it with access for this user only. Opts may be nil. The caller
// closes the store.
func Open(ctx context.Context, path string, opts *Options) (*Store, error) {
	if path == "" {
		return nil, errors.New("sqlitestore: the path of the database file is empty")
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	if dir := filepath.Dir(path); dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("sqlitestore: %s is no folder that a database file can be made in", dir)
		}
	}
	// SQLite would create it readable for all users. The files beside it get its mode. A
	// symbolic link is followed, as SQLite does: Stat and OpenFile look at its target.
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if f, err := os.OpenFile(path, os.O_CREATE, 0o600); err == nil {
			_ = f.Close()
		}
	}
	db, err := sql.Open("sqlite", DSN(path))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	// Connections are costly to open, and by default the pool would close all but two
	// after each burst. More connections than these do not read any faster.
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	s, err := New(ctx, db, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), db.Close())
	}
	s.ownDB = true
	return s, nil
}

// DSN returns the data source name with which [Open] opens a file, for programs
// that open it themselves to share transactions:
//
//   - journal_mode=WAL: readers and the writer do not wait for each other, and a
//     commit is one sequential write.
//   - synchronous=FULL: each commit flushes the log, so a confirmed step survives a
//     power failure. NORMAL could lose it.
//   - busy_timeout=5000: a writer waits up to five seconds for another one.
//   - wal_autocheckpoint=4000: the log is copied into the file when it has 4,000
//     pages, 16 MB, instead of 1,000. A page that many transactions have written is
//     copied once, which saves a sixth of the CPU time. Most of it is copied beside the
//     steps, on another connection. With zero the store copies nothing: then another
//     program does, such as one that replicates the log.
//   - foreign_keys=ON: for the caller's own tables.
//   - _txlock=immediate: a transaction takes the write lock when it begins. A
//     transaction that reads first may be refused the lock later.
//
// Everything else is SQLite's default: other page sizes, larger caches and memory maps
// were measured and are no faster.
func DSN(path string) string {
	q := url.Values{
		"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()), "wal_autocheckpoint(4000)", "foreign_keys(ON)"},
		"_txlock": {"immediate"},
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// DB returns the database, for transactions that the store is to join.
func (s *Store) DB() *sql.DB { return s.db }

// ErrClosed says that the store was closed before the step. Nothing was sent.
var ErrClosed = errors.New("sqlitestore: the store is closed")

// Close waits for the steps that are under way and closes what [Open] or [New] opened.
// Later steps return [ErrClosed].
func (s *Store) Close() error {
	s.life.End()
	s.deferred.Wait() // a batch may last longer than the call that it was sent for
	s.immediate.Wait()
	s.log.runs.Wait()
	err := errors.Join(s.reads.Close(), s.deferredConn.close(), s.immediateConn.close(), s.box.close())
	if s.ownDB {
		err = errors.Join(err, s.db.Close())
	}
	return err
}

package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

var (
	_ retrysafe.Store   = (*Store)(nil)
	_ retrysafe.Counter = (*Store)(nil)
	_ retrysafe.Tx      = (*Tx)(nil)
)

// Options are what a [Store] may be given. Nil and zero values are the defaults.
type Options struct {
	// MaxBatch is how many steps share one transaction at most. Default 256.
	MaxBatch int
	// MaxQueue is how many steps may wait for the next transaction. Default 10,000.
	MaxQueue int
	// Timeout bounds how long a transaction waits for a connection. For the write
	// lock it waits as long as the connection's busy timeout says. Default 10 s.
	Timeout time.Duration
	// SkipMigrations leaves the schema to others.
	SkipMigrations bool
	// Moving opens the store also while a move keeps it closed, for package move to
	// finish its work. Steps are refused all the same.
	Moving bool
}

func (o *Options) check() error {
	if o != nil && (o.MaxBatch < 0 || o.MaxQueue < 0 || o.Timeout < 0) {
		return errors.New("sqlitestore: an option is negative")
	}
	return nil
}

// Store keeps records in a SQLite database. It is safe for concurrent use.
type Store struct {
	db     *sql.DB
	ownDB  bool
	steps  trips
	writer session    // of steps
	waits  trips      // of steps that have to wait for the write lock
	waiter session    // of waits
	turn   sync.Mutex // of the writers in this process; others are SQLite's to keep apart
	reads  *sql.Stmt
	held   holds        // keys of open transactions
	clock  atomic.Int64 // the latest time seen, in microseconds: time does not go back
	box    Outbox
	life   groupcommit.Life
}

// New returns a store over db, which must be opened with the driver "sqlite" and
// configured as [DSN] does. It migrates the schema unless told otherwise. Opts may
// be nil. The store keeps up to two connections for itself if there are enough, and
// one more for its outbox.
// Closing db is the caller's, after the store.
func New(ctx context.Context, db *sql.DB, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Store{db: db}
	most := db.Stats().MaxOpenConnections
	s.writer = session{db: db, lend: most > 0 && most < fewConns}
	s.waiter = s.writer
	s.box.s, s.box.own = s, session{db: db, lend: s.writer.lend}
	s.steps.Send, s.waits.Send = s.send, s.sendLocked
	for _, l := range []*trips{&s.steps, &s.waits} {
		l.Most = cmp.Or(o.MaxBatch, 256)
		l.Queue = cmp.Or(o.MaxQueue, 10_000)
		l.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	}
	if !o.SkipMigrations {
		if err := Migrate(ctx, db); err != nil {
			return nil, err
		}
	}
	if err := s.prepare(ctx, o.Moving); err != nil {
		return nil, err
	}
	return s, nil
}

// now returns the machine's clock, which never goes back for this process.
func (s *Store) now() time.Time {
	for {
		last, now := s.clock.Load(), time.Now().UnixMicro()
		if now < last {
			now = last
		}
		if s.clock.CompareAndSwap(last, now) {
			return time.UnixMicro(now).UTC()
		}
	}
}

// Create implements [retrysafe.Store]. A key that exists costs one read, which
// those that come together share, and waits for no writer.
func (s *Store) Create(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return s.do(ctx, true, &r)
}

// Swap implements [retrysafe.Swapper].
func (s *Store) Swap(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return s.do(ctx, false, &r)
}

// Load implements [retrysafe.Store].
func (s *Store) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if !s.life.Enter() {
		return retrysafe.Record{}, ErrClosed
	}
	defer s.life.Leave()
	r, err := decode(s.reads.QueryRowContext(ctx, idOf(ref)), s.now)
	if err == nil && r.Ref != ref {
		return retrysafe.Record{}, errOther
	}
	return r, s.explain(ctx, err)
}

// fewConns is how many connections are too few to keep any.
const fewConns = 4

// errOther is for the second of two keys with one id.
var errOther = fmt.Errorf("%w: another key has the same hash", retrysafe.ErrUnreadable)

func decode(row *sql.Row, now func() time.Time) (retrysafe.Record, error) {
	var b []byte
	err := row.Scan(&b)
	if errors.Is(err, sql.ErrNoRows) {
		return retrysafe.Record{}, retrysafe.ErrNotFound
	}
	if err != nil {
		return retrysafe.Record{}, fmt.Errorf("load key: %w", err)
	}
	r, err := retrysafe.DecodeRecord(b)
	r.ReadAt = now()
	return r, err
}

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
	"github.com/retrysafe/retrysafe/store/storekit"
)

var (
	_ retrysafe.Store   = (*Store)(nil)
	_ retrysafe.Counter = (*Store)(nil)
	_ retrysafe.Tx      = (*Tx)(nil)
)

// Options configure a [Store]. Nil and zero values are the defaults.
type Options struct {
	// MaxBatch is how many steps share one transaction at most. Default 256.
	MaxBatch int
	// MaxQueue is how many steps may wait for the next transaction. Default 10,000.
	MaxQueue int
	// Timeout bounds how long a transaction waits for a connection. It waits for the
	// write lock as long as the connection's busy timeout says. Default 10 s.
	Timeout time.Duration
	// SkipMigrations leaves the schema as it is.
	SkipMigrations bool
	// Moving opens the store even if a move has closed it, for "retrysafe keys copy". The
	// steps of a closed store other than Load still return [ErrMoved] or [ErrFilling].
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
	db    *sql.DB
	ownDB bool

	deferred      batcher // takes the write lock only to write
	deferredConn  session
	immediate     batcher // waits for the write lock first
	immediateConn session

	writing  sync.Mutex // one writer of this process at a time; SQLite keeps processes apart
	log      checkpointer
	reads    *sql.Stmt
	reserved reservedRows
	held     heldKeys     // keys of open transactions
	clock    atomic.Int64 // the latest time seen, in microseconds: time does not go back
	box      Outbox
	// announces says that the file has the tables of changes.
	announces bool
	life      groupcommit.Life
}

// New returns a store over db, which must be opened with the driver "sqlite" and
// configured as [DSN] does. It migrates the schema unless opts.SkipMigrations is set.
// Opts may be nil. If the pool has at least four connections, the store keeps up to two
// of them, and one more for its outbox. The caller closes db, after the store.
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
	s.deferredConn = session{db: db, lend: most > 0 && most < fewConns}
	s.immediateConn = s.deferredConn
	s.box.s, s.box.own = s, session{db: db, lend: s.deferredConn.lend}
	s.deferred.Send, s.immediate.Send = s.sendDeferred, s.sendImmediate
	for _, b := range []*batcher{&s.deferred, &s.immediate} {
		b.MaxBatch = cmp.Or(o.MaxBatch, 256)
		b.MaxQueue = cmp.Or(o.MaxQueue, 10_000)
		b.Timeout = cmp.Or(o.Timeout, 10*time.Second)
		b.DeadlineOnly = retrysafe.DeadlineOnly
		b.Large = (*queued).large
	}
	if !o.SkipMigrations {
		if err := Migrate(ctx, db); err != nil {
			return nil, err
		}
	}
	if err := s.prepare(ctx, o.Moving); err != nil {
		return nil, err
	}
	if err := s.findChanges(ctx); err != nil {
		return nil, err
	}
	if err := s.findReceipts(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// now returns the machine's time. Within this process it never goes back.
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

// Create implements [retrysafe.Store]. For a key that exists it is one read, which
// concurrent calls share, and it waits for no writer.
func (s *Store) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return s.do(ctx, true, &w)
}

// Swap implements [retrysafe.Swapper].
func (s *Store) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return s.do(ctx, false, &w)
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

// fewConns is the size of the smallest pool that the store keeps connections of.
const fewConns = 4

// errOther refuses the second of two keys that have the same id.
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
	r, err := storekit.DecodeRecord(b)
	r.ReadAt = now()
	return r, err
}

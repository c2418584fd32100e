package sqlitestore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/lane"
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
	// Timeout bounds one transaction. Default 10 s.
	Timeout time.Duration
	// SkipMigrations leaves the schema to others.
	SkipMigrations bool
}

// Store keeps records in a SQLite database. It is safe for concurrent use.
type Store struct {
	db     *sql.DB
	steps  lane.Lane[step, retrysafe.Record]
	writer writer // of the lane's trips
	reads  *sql.Stmt
	clock  atomic.Int64 // the latest time seen, in microseconds: time does not go back
}

// New returns a store over db, whose connections must be configured as [Open]
// does: write-ahead log, synchronous=FULL, a busy timeout. It migrates the
// schema unless told otherwise. Opts may be nil. Closing db is the caller's.
func New(ctx context.Context, db *sql.DB, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.MaxBatch < 0 || o.MaxQueue < 0 || o.Timeout < 0 {
		return nil, errors.New("sqlitestore: an option is negative")
	}
	s := &Store{db: db}
	s.writer.lend = db.Stats().MaxOpenConnections == 1
	s.steps.Send = s.send
	s.steps.Most = cmp.Or(o.MaxBatch, 256)
	s.steps.Queue = cmp.Or(o.MaxQueue, 10_000)
	s.steps.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	if !o.SkipMigrations {
		if err := Migrate(ctx, db); err != nil {
			return nil, err
		}
	}
	var err error
	if s.reads, err = db.PrepareContext(ctx, selectKey); err != nil {
		return nil, fmt.Errorf("sqlitestore: prepare: %w", err)
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

// idOf is the primary key of a ref: half of a SHA-256 over scope and key, each
// behind its length.
func idOf(ref retrysafe.Ref) []byte {
	b := make([]byte, 0, 128)
	b = binary.BigEndian.AppendUint32(b, uint32(len(ref.Scope)))
	b = append(append(b, ref.Scope...), ref.Key...)
	sum := sha256.Sum256(b)
	return sum[:16]
}

// Create implements [retrysafe.Store]. A key that exists costs one read, and no
// write lock.
func (s *Store) Create(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	got, err := s.Load(ctx, r.Ref)
	switch {
	case err == nil && got.Owner == r.Owner && !r.Owner.IsZero():
		return got, nil
	case err == nil:
		return got, retrysafe.ErrExists
	case !errors.Is(err, retrysafe.ErrNotFound):
		return got, err
	}
	return s.steps.Do(ctx, step{create: true, r: r})
}

// Swap implements [retrysafe.Swapper].
func (s *Store) Swap(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	return s.steps.Do(ctx, step{r: r})
}

// Load implements [retrysafe.Store].
func (s *Store) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	return decode(s.reads.QueryRowContext(ctx, idOf(ref)), s.now)
}

// Count implements [retrysafe.Counter].
func (s *Store) Count(ctx context.Context, scope string) (n int, err error) {
	if err := s.db.QueryRowContext(ctx, countKeys, []byte(scope)).Scan(&n); err != nil {
		return 0, fmt.Errorf("count keys: %w", err)
	}
	return n, nil
}

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

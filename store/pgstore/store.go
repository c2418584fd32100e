package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/lane"
)

var (
	_ retrysafe.Store   = (*Store)(nil)
	_ retrysafe.Counter = (*Store)(nil)
)

// Options are what a [Store] may be given. Nil and zero values are the defaults.
type Options struct {
	// Schema is where the tables are. Default: the first of the search path.
	Schema string
	// PgBouncer says that connections go through a pooler in transaction mode:
	// nothing is prepared, and every setting is made for one transaction.
	PgBouncer bool
	// MaxBatch is how many steps travel together at most. Default 256.
	MaxBatch int
	// MaxQueue is how many steps may wait for the next trip. Default 10,000.
	MaxQueue int
	// Timeout bounds one trip. Default 10 s.
	Timeout time.Duration
	// SkipMigrations leaves the schema to others.
	SkipMigrations bool
}

// Store keeps records in PostgreSQL. It is safe for concurrent use.
type Store struct {
	sql           statements
	table         string
	config        *pgx.ConnConfig
	beforeConnect func(context.Context, *pgx.ConnConfig) error
	pooled        bool
	lockTimeout   string
	timeout       time.Duration

	pool    *pgxpool.Pool
	ownPool bool

	reserves, relaxed reserveLane
	settles           settleLane
	reads             readLane
	back              backLane
	commits           sync.WaitGroup // of transactions that nobody waits for any more

	// doubt: the server has warned that a commit may not have reached its
	// standby. Until one has, nothing is confirmed.
	doubt atomic.Bool
}

// Open connects to the database that url names and migrates its schema unless
// told otherwise. Opts may be nil. Close the store when done.
func Open(ctx context.Context, url string, opts *Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("pgstore: the store's URL is not one of PostgreSQL: %w", err)
	}
	if opts != nil && opts.PgBouncer {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		config.ConnConfig.StatementCacheCapacity, config.ConnConfig.DescriptionCacheCapacity = 0, 0
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	s, err := New(ctx, pool, opts)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.ownPool = true
	return s, nil
}

// New returns a store over the database of pool. Transactions come from the
// pool; the store's own steps have connections of their own, four at most, made
// like the pool's. Closing pool is the caller's, after the store.
func New(ctx context.Context, pool *pgxpool.Pool, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.MaxBatch < 0 || o.MaxQueue < 0 || o.Timeout < 0 {
		return nil, errors.New("pgstore: an option is negative")
	}
	config := pool.Config()
	s := &Store{
		pool: pool, config: config.ConnConfig, beforeConnect: config.BeforeConnect,
		pooled: o.PgBouncer, lockTimeout: "20ms", timeout: cmp.Or(o.Timeout, 10*time.Second),
		table: tableIn(o.Schema),
	}
	s.sql = newStatements(s.table)
	most, queue := cmp.Or(o.MaxBatch, 256), cmp.Or(o.MaxQueue, 10_000)
	for _, l := range []*reserveLane{&s.reserves, &s.relaxed} {
		l.link.s, l.link.relaxed = s, l == &s.relaxed
		l.lane = lane.Lane[reservation, retrysafe.Record]{Send: l.send, Most: most, Queue: queue, Timeout: s.timeout}
	}
	s.settles.link.s = s
	s.settles.lane = lane.Lane[settlement, retrysafe.Record]{Send: s.settles.send, Most: most, Queue: queue, Timeout: s.timeout}
	s.reads.link.s = s
	s.reads.lane = lane.Lane[retrysafe.Ref, retrysafe.Record]{Send: s.reads.send, Most: most, Queue: queue, Timeout: s.timeout}
	s.back.link.s = s
	s.back.watermark = unfiled
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("pgstore: %w", explain(err)), s.Close())
	}
	return s, nil
}

// start finds out whether the database is there and its schema is this program's.
func (s *Store) start(ctx context.Context, o Options) error {
	if o.SkipMigrations {
		return s.pool.Ping(ctx)
	}
	return migrateConn(ctx, s.pool, o.Schema)
}

// Pool returns the pool that transactions come from.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Close ends the store's connections, and the pool if Open made it. Steps under
// way end first.
func (s *Store) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	s.commits.Wait()
	var errs []error
	for _, l := range []interface{ close(context.Context) error }{&s.reserves, &s.relaxed, &s.settles, &s.reads, &s.back} {
		errs = append(errs, l.close(ctx))
	}
	if s.ownPool {
		s.pool.Close()
	}
	return errors.Join(errs...)
}

// Create implements [retrysafe.Store]. A key that exists costs no write.
func (s *Store) Create(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	l := &s.reserves
	if r.Relaxed {
		l = &s.relaxed
	}
	got, err := l.lane.Do(ctx, reservation{id: idOf(r.Ref), r: &r})
	return got, explain(err)
}

// Swap implements [retrysafe.Swapper]. A record that an open transaction has
// locked is [retrysafe.ErrBusy].
func (s *Store) Swap(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	got, err := s.settles.lane.Do(ctx, settlement{id: idOf(r.Ref), r: &r})
	return got, explain(err)
}

// Load implements [retrysafe.Store].
func (s *Store) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	got, err := s.reads.lane.Do(ctx, ref)
	return got, explain(err)
}

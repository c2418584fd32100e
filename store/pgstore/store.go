package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
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
	// Timeout bounds one trip. Default 5 s.
	Timeout time.Duration
	// SkipMigrations leaves the schema to others.
	SkipMigrations bool
	// Moving opens the store also while a move keeps it closed, for package move to
	// finish its work. Steps are refused all the same.
	Moving bool
}

// Store keeps records in PostgreSQL. It is safe for concurrent use.
type Store struct {
	sql           statements
	stepType      uint32 // its object id, of which arrays of steps are made
	table, schema string
	config        *pgx.ConnConfig
	beforeConnect func(context.Context, *pgx.ConnConfig) error
	pooled        bool
	lockTimeout   string
	timeout       time.Duration

	pool    *pgxpool.Pool
	ownPool bool

	links, soft       links // soft: commits need not be flushed
	reserves, relaxed reserveLane
	settles           settleLane
	reads             readLane
	back              backLane
	commits           sync.WaitGroup // of transactions that nobody waits for any more
	life              groupcommit.Life
	doubts            *doubts
	box               Outbox
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
	d := new(doubts)
	d.watch(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	s, err := newStore(ctx, pool, d, opts)
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
//
// The store cannot hear the warnings of a pool that it did not make. Where commits
// wait for a standby, a second one vouches for each commit of [retrysafe.DoTx].
func New(ctx context.Context, pool *pgxpool.Pool, opts *Options) (*Store, error) {
	return newStore(ctx, pool, new(doubts), opts)
}

func newStore(ctx context.Context, pool *pgxpool.Pool, d *doubts, opts *Options) (*Store, error) {
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
		pooled: o.PgBouncer, lockTimeout: "20ms", timeout: cmp.Or(o.Timeout, 5*time.Second),
		table: tableIn(o.Schema), doubts: d,
	}
	most, queue := cmp.Or(o.MaxBatch, 256), cmp.Or(o.MaxQueue, 10_000)
	for _, l := range []*reserveLane{&s.reserves, &s.relaxed} {
		l.via = &s.links
		l.lane = groupcommit.Batcher[reservation, retrysafe.Record]{Send: l.send, MaxBatch: most, MaxQueue: queue, HonoursDeadline: true, DeadlineOnly: retrysafe.DeadlineOnly}
	}
	s.links.s = s
	s.box.s, s.box.links.s, s.box.links.wait = s, s, "200ms"
	s.soft.s, s.soft.relaxed = s, true
	s.relaxed.via = &s.soft
	s.settles.via, s.reads.via, s.back.via = &s.links, &s.links, &s.links
	s.settles.lane = groupcommit.Batcher[settlement, retrysafe.Record]{Send: s.settles.send, MaxBatch: most, MaxQueue: queue, HonoursDeadline: true, DeadlineOnly: retrysafe.DeadlineOnly}
	s.reads.lane = groupcommit.Batcher[retrysafe.Ref, retrysafe.Record]{Send: s.reads.send, MaxBatch: most, MaxQueue: queue, HonoursDeadline: true, DeadlineOnly: retrysafe.DeadlineOnly}
	s.back.watermark = unfiled
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("pgstore: %w", explain(err)), s.Close())
	}
	return s, nil
}

// start finds out whether the database is there and its schema is this program's.
func (s *Store) start(ctx context.Context, o Options) (err error) {
	if !o.SkipMigrations {
		err = migrateConn(ctx, s.pool, o.Schema)
	}
	if err == nil {
		err = s.settleOn(ctx, o)
	}
	if errors.Is(err, context.DeadlineExceeded) && unreachable(err) == "" { // a pool says no more
		err = &hintedError{err, noAnswer}
	}
	return err
}

// settleOn finds out in which schema the table is, and names it from now on: a
// search path that changes, or that another client of a pooler has left behind,
// must not lead to another table of the same name.
func (s *Store) settleOn(ctx context.Context, o Options) error {
	err := s.locate(ctx, s.table)
	if errors.Is(err, pgx.ErrNoRows) {
		return s.settleClosed(ctx, o)
	}
	return err
}

// locate finds the schema that a table of ours is in.
func (s *Store) locate(ctx context.Context, table string) error {
	var schema string
	var steps uint32
	err := s.pool.QueryRow(ctx, `SELECT n.nspname, t.oid, t.typarray FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_type t ON t.typnamespace = n.oid AND t.typname = 'retrysafe_step' WHERE c.oid = to_regclass($1)`, table).Scan(&schema, &s.stepType, &steps)
	if err != nil {
		return err
	}
	s.table, s.schema = tableIn(schema), schema
	s.sql = newStatements(s.table, qualified(schema, "retrysafe_step"), steps)
	s.box.sql = newBoxStatements(schema)
	return nil
}

// Pool returns the pool that transactions come from.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Create implements [retrysafe.Store]. A key that exists costs no write.
func (s *Store) Create(ctx context.Context, r retrysafe.Record) (retrysafe.Record, error) {
	if !s.life.Enter() {
		return retrysafe.Record{}, ErrClosed
	}
	defer s.life.Leave()
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
	if !s.life.Enter() {
		return retrysafe.Record{}, ErrClosed
	}
	defer s.life.Leave()
	got, err := s.settles.lane.Do(ctx, settlement{id: idOf(r.Ref), r: &r})
	return got, explain(err)
}

// Load implements [retrysafe.Store].
func (s *Store) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if !s.life.Enter() {
		return retrysafe.Record{}, ErrClosed
	}
	defer s.life.Leave()
	got, err := s.reads.lane.Do(ctx, ref)
	return got, explain(err)
}

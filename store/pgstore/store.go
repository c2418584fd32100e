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
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

var (
	_ retrysafe.Store   = (*Store)(nil)
	_ retrysafe.Counter = (*Store)(nil)
)

// Options configure a [Store]. Nil and zero values are the defaults.
type Options struct {
	// Schema is the schema of the tables. Default: the first of the search path.
	Schema string
	// PgBouncer says that connections go through a pooler in transaction mode. Then no
	// statement is prepared, and every setting is made for one transaction.
	PgBouncer bool
	// MaxBatch is how many steps share a batch at most. Default 256.
	MaxBatch int
	// MaxQueue is how many steps may wait for the next batch. Default 10,000.
	MaxQueue int
	// Timeout bounds one batch. Default 5 s.
	Timeout time.Duration
	// AnyServer lets the store work on a server that is not PostgreSQL 14 or later, such as
	// CockroachDB, YugabyteDB or Aurora DSQL. The store excludes two attempts under one key
	// by advisory locks, which such servers lack, or accept and ignore: set it only if every
	// check of "retrysafe prove --store" has passed on the very version of that server.
	AnyServer bool
	// SkipMigrations says that the schema is migrated by other means.
	SkipMigrations bool
	// Moving opens the store also while a move has it closed, so that "retrysafe keys copy"
	// can finish. Steps are refused all the same.
	Moving bool
}

// Store keeps records in PostgreSQL. It is safe for concurrent use.
type Store struct {
	sql           statements
	moveSQL       moveStatements
	flaw          string // of a server that only Options.AnyServer lets in
	stepType      uint32 // the object id of the type retrysafe_step
	table, schema string
	config        *pgx.ConnConfig
	beforeConnect func(context.Context, *pgx.ConnConfig) error
	pgBouncer     bool
	lockTimeout   string
	lockPatience  time.Duration
	timeout       time.Duration

	pool    *pgxpool.Pool // for transactions
	ownPool bool          // Open made it
	// namesIsolation says that a session of the pool's had another default of the isolation
	// level than READ COMMITTED.
	namesIsolation atomic.Bool

	way                 way
	conns, relaxedConns connPool // of relaxedConns commits need not be flushed
	reserves, relaxed   reserveBatcher
	settles             settleBatcher
	largeReserves       reserveBatcher // of writes that carry much: others do not wait for them
	largeSettles        settleBatcher
	reads               readBatcher
	background          background
	lists               turns
	outbox              Outbox
	changes             changeFeed

	life    groupcommit.Life
	commits sync.WaitGroup // commits whose caller has stopped waiting
	doubt   *replicationDoubt
}

// Open connects to the database that url names and migrates its schema unless
// told otherwise. It refuses a server that is not PostgreSQL 14 or later. Opts may be nil.
// Close the store when done.
func Open(ctx context.Context, url string, opts *Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("pgstore: the store's URL is not one of PostgreSQL: %w", err)
	}
	if opts != nil && opts.PgBouncer {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		config.ConnConfig.StatementCacheCapacity, config.ConnConfig.DescriptionCacheCapacity = 0, 0
	} else {
		config.AfterConnect = noticeClosed
	}
	d := new(replicationDoubt)
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

// noticeClosed lets the server look, every two seconds while a statement runs, whether its
// client has closed the connection. A driver that gives up a statement asks the server to
// cancel it and closes the connection; a request that comes a moment before the statement
// begins cancels nothing, and the transaction would hold its key until the statement ends.
// Servers on some systems cannot look, and keep the setting that they have.
func noticeClosed(ctx context.Context, c *pgx.Conn) error {
	const look = `SELECT set_config('client_connection_check_interval', '2s', false) WHERE current_setting('client_connection_check_interval') = '0'`
	_, err := c.PgConn().Exec(ctx, look).ReadAll()
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return nil
	}
	return err
}

// New returns a store over the database of pool. Transactions use the pool; the store's
// own steps have up to five connections of their own, two more once there were large
// requests and answers, one for relaxed reservations and one for [Store.Changes], made
// like the pool's. Where commits are slow, up to fourteen more let them overlap. The caller
// closes pool, after the store.
//
// The store does not get the warnings of a pool that it did not make. Where commits wait
// for a standby, each commit of [retrysafe.DoTx] is therefore followed by a second one
// that confirms it.
func New(ctx context.Context, pool *pgxpool.Pool, opts *Options) (*Store, error) {
	return newStore(ctx, pool, new(replicationDoubt), opts)
}

func newStore(ctx context.Context, pool *pgxpool.Pool, d *replicationDoubt, opts *Options) (*Store, error) {
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
		pgBouncer: o.PgBouncer, lockTimeout: "20ms", lockPatience: lockPatience, timeout: cmp.Or(o.Timeout, 5*time.Second),
		table: tableIn(o.Schema), doubt: d,
	}
	s.conns.s = s
	s.relaxedConns.s, s.relaxedConns.relaxed = s, true
	s.outbox.s, s.outbox.conns.s, s.outbox.conns.lockTimeout = s, s, "200ms"
	s.changes.conns.s, s.changes.conns.lockTimeout = s, "1s"

	s.reserves.conns, s.reserves.batcher = &s.conns, newBatcher(o, s.reserves.depart)
	s.relaxed.conns, s.relaxed.batcher = &s.relaxedConns, newBatcher(o, s.relaxed.depart)
	s.settles.conns, s.settles.batcher = &s.conns, newBatcher(o, s.settles.depart)
	s.largeReserves.conns, s.largeReserves.batcher = &s.conns, newBatcher(o, s.largeReserves.depart)
	s.largeSettles.conns, s.largeSettles.batcher = &s.conns, newBatcher(o, s.largeSettles.depart)
	s.largeReserves.batcher.MaxBatch, s.largeSettles.batcher.MaxBatch = maxLarge, maxLarge
	s.reserves.batcher.Key = func(q reservation) [16]byte { return q.id }
	s.settles.batcher.Key = func(q settlement) [16]byte { return q.id }
	if !o.PgBouncer { // there the commit is a statement, whose result comes with the rows
		s.reserves.batcher.Flights, s.settles.batcher.Flights = maxFlights, maxFlights
	}
	s.reads.conns, s.reads.batcher = &s.conns, newBatcher(o, s.reads.depart)
	s.background.conns, s.background.watermark, s.lists.conns = &s.conns, noWatermark, &s.conns
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("pgstore: %w", explain(err)), s.Close())
	}
	return s, nil
}

func newBatcher[Q any](o Options, send func(context.Context, []Q, *groupcommit.Flight) []answer) groupcommit.Batcher[Q, retrysafe.Record] {
	return groupcommit.Batcher[Q, retrysafe.Record]{
		SendFlight: send, MaxBatch: cmp.Or(o.MaxBatch, 256), MaxQueue: cmp.Or(o.MaxQueue, 10_000),
		HonoursDeadline: true, DeadlineOnly: retrysafe.DeadlineOnly,
	}
}

// maxLarge is how many large writes share a batch. The server's time for one of them is
// longer than a commit, so more would save little, and would hold more memory.
const maxLarge = 2

// isLarge reports whether a write carries so much that others should not wait for it.
func isLarge(w *retrysafe.Write) bool {
	var answer []byte
	if w.Result != nil {
		answer = w.Result.Body
	}
	return groupcommit.Large(w.Request, w.Checkpoint.Data, answer)
}

// start checks the server, migrates the schema, unless told otherwise, and finds the
// tables.
func (s *Store) start(ctx context.Context, o Options) (err error) {
	err = s.admit(ctx, o.AnyServer)
	if err == nil && !o.SkipMigrations {
		err = migrateConn(ctx, s.pool, o.Schema)
	}
	if err == nil {
		err = s.locateTables(ctx, o)
	}
	if errors.Is(err, context.DeadlineExceeded) && unreachable(err) == "" { // the pool gives no other reason
		err = &hintedError{err, noAnswer}
	}
	return err
}

// locateTables finds the schema of the tables. All statements name it: a search path that
// changes, or that another client of a pooler has left behind, must not lead to another
// table of the same name.
func (s *Store) locateTables(ctx context.Context, o Options) error {
	err := s.locate(ctx, s.table)
	if errors.Is(err, pgx.ErrNoRows) {
		return s.locateClosed(ctx, o)
	}
	return err
}

// locate finds the schema of a table, and makes the statements for it.
func (s *Store) locate(ctx context.Context, table string) error {
	var schema string
	var steps uint32
	err := s.pool.QueryRow(ctx, `SELECT n.nspname, t.oid, t.typarray,
			coalesce(has_table_privilege(f.changes, 'SELECT') AND has_table_privilege(f.changes, 'INSERT') AND has_table_privilege(f.changes, 'DELETE')
				AND has_table_privilege(f.last, 'SELECT') AND has_table_privilege(f.last, 'UPDATE'), false),
			f.receipts IS NOT NULL, coalesce(has_table_privilege(f.receipts, 'SELECT') AND has_table_privilege(f.receipts, 'INSERT')
				AND has_table_privilege(f.receipts, 'UPDATE') AND has_table_privilege(f.receipts, 'DELETE'), false)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_type t ON t.typnamespace = n.oid AND t.typname = 'retrysafe_step'
		CROSS JOIN LATERAL (SELECT to_regclass(quote_ident(n.nspname) || '.retrysafe_changes')::oid AS changes, to_regclass(quote_ident(n.nspname) || '.retrysafe_last_change')::oid AS last,
			to_regclass(quote_ident(n.nspname) || '.retrysafe_receipts')::oid AS receipts) f
		WHERE c.oid = to_regclass($1)`, table).Scan(&schema, &s.stepType, &steps, &s.changes.there, &s.outbox.receipts.there, &s.outbox.receipts.usable)
	if err != nil {
		return err
	}
	s.table, s.schema = tableIn(schema), schema
	s.sql, s.moveSQL, s.outbox.sql = newStatements(schema, steps), newMoveStatements(schema), newOutboxStatements(schema)
	return nil
}

// Pool returns the pool that transactions use.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Create implements [retrysafe.Store]. If the key exists nothing is written.
func (s *Store) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if !s.life.Enter() {
		return retrysafe.Record{}, ErrClosed
	}
	defer s.life.Leave()
	b := &s.reserves
	switch {
	case isLarge(&w):
		b = &s.largeReserves
	case w.Relaxed:
		b = &s.relaxed
	}
	got, err := b.batcher.Do(ctx, reservation{id: idOf(w.Ref), w: &w})
	return got, explain(err)
}

// Swap implements [retrysafe.Swapper]. If an open transaction has locked the record the
// error is [retrysafe.ErrBusy].
func (s *Store) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if !s.life.Enter() {
		return retrysafe.Record{}, ErrClosed
	}
	defer s.life.Leave()
	if w.Announce && s.changes.there {
		got, err := s.changes.announce(ctx, &w)
		return got, explain(err)
	}
	b := &s.settles
	if isLarge(&w) {
		b = &s.largeSettles
	}
	got, err := b.batcher.Do(ctx, settlement{id: idOf(w.Ref), w: &w})
	return got, explain(err)
}

// Load implements [retrysafe.Store].
func (s *Store) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if !s.life.Enter() {
		return retrysafe.Record{}, ErrClosed
	}
	defer s.life.Leave()
	got, err := s.reads.batcher.Do(ctx, ref)
	return got, explain(err)
}

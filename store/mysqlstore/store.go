package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
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
	// Timeout bounds one batch. Default 5 s.
	Timeout time.Duration
	// SkipMigrations leaves the schema as it is.
	SkipMigrations bool
	// Moving opens the store even if a move has closed it, for "retrysafe keys copy". The
	// steps of a closed store still return [ErrMoved] or [ErrFilling].
	Moving bool
	// Logger gets, at level debug and once for each cause, why steps take more round trips
	// than they need. Default slog.Default().
	Logger *slog.Logger
}

func (o *Options) check() error {
	if o != nil && (o.MaxBatch < 0 || o.MaxQueue < 0 || o.Timeout < 0) {
		return errors.New("mysqlstore: an option is negative")
	}
	return nil
}

// Store keeps records in MySQL or MariaDB. It is safe for concurrent use.
type Store struct {
	db    *sql.DB // for transactions of the caller's
	steps conns   // for the store's own steps
	owned []*sql.DB

	batches stepBatcher
	box     Outbox
	timeout time.Duration

	fallbacks fallbacks

	life  groupcommit.Life
	alone sync.WaitGroup // steps that wait for a lock, and whose caller may have gone
}

// New returns a store over db, a pool of the driver github.com/go-sql-driver/mysql. It
// refuses a server whose settings would lose or change data, and a pool whose sessions are
// not READ COMMITTED and strict. It migrates the schema unless opts.SkipMigrations is set.
// Opts may be nil. The caller closes db, after the store.
//
// The store borrows connections of db for its steps. If db allows several statements in
// one round trip (multiStatements=true and interpolateParams=true in its data source
// name) a batch takes fewer round trips. [Open] has connections of its own for that, so
// that the caller's need not allow it.
func New(ctx context.Context, db *sql.DB, opts *Options) (*Store, error) {
	return newStore(ctx, db, db, opts)
}

// newStore returns a store whose own steps use connections of steps.
func newStore(ctx context.Context, db, steps *sql.DB, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Store{db: db, steps: conns{db: steps}, timeout: cmp.Or(o.Timeout, 5*time.Second)}
	s.box.s = s
	s.fallbacks.logger = cmp.Or(o.Logger, slog.Default())
	s.batches.init(s, o)
	if err := s.steps.probe(ctx); err != nil {
		return nil, explain(err)
	}
	mariaDB, err := checkServer(ctx, db)
	if err != nil {
		return nil, err
	}
	s.steps.mariaDB, s.steps.lone = mariaDB, mariaDB
	if !o.SkipMigrations {
		if err := Migrate(ctx, steps); err != nil {
			return nil, err
		}
	}
	if err := checkTables(ctx, steps); err != nil {
		return nil, err
	}
	if err := newerSchema(ctx, steps); err != nil {
		return nil, err
	}
	err = s.closed(ctx)
	switch {
	case err != nil && o.Moving: // whose tables have other names
		return s, nil
	case err == nil && o.SkipMigrations:
		err = checkColumns(ctx, steps)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// answer is what one request of a batch gets.
type answer = groupcommit.Answer[retrysafe.Record]

var errState = errors.New("mysqlstore: the record has no state")

// isLarge reports whether a request carries so much that others should not wait for it.
func isLarge(w *retrysafe.Write) bool {
	var body []byte
	if w.Result != nil {
		body = w.Result.Body
	}
	return groupcommit.Large(w.Request, w.Checkpoint.Data, body)
}

// Create implements [retrysafe.Store]. For a key that exists it is one read, which
// concurrent calls share, and it waits for no writer.
func (s *Store) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if w.State == 0 {
		return retrysafe.Record{}, errState
	}
	if !s.life.Enter() {
		return retrysafe.Record{}, ErrClosed
	}
	defer s.life.Leave()
	got, err := s.batches.batcher.Do(ctx, step{id: idOfRef(w.Ref), w: &w})
	return got, s.explain(ctx, err)
}

// Swap implements [retrysafe.Swapper].
func (s *Store) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if w.State == 0 {
		return retrysafe.Record{}, errState
	}
	if !s.life.Enter() {
		return retrysafe.Record{}, ErrClosed
	}
	defer s.life.Leave()
	q := swap{idOfRef(w.Ref), &w}
	err := errLocked
	var got retrysafe.Record
	if !w.Announce { // announced swaps take turns at one row
		got, err = s.batches.batcher.Do(ctx, step{q.id, q.w, true})
	}
	if errors.Is(err, errLocked) {
		got, err = s.swapAlone(ctx, q)
	}
	return got, s.explain(ctx, err)
}

// Load implements [retrysafe.Store].
func (s *Store) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if !s.life.Enter() {
		return retrysafe.Record{}, ErrClosed
	}
	defer s.life.Leave()
	var at row
	key := idOfRef(ref)
	err := at.scan(s.steps.db.QueryRowContext(ctx, selectKey, key[:]).Scan)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return retrysafe.Record{}, retrysafe.ErrNotFound
	case err != nil:
		return retrysafe.Record{}, s.explain(ctx, fmt.Errorf("load key: %w", err))
	}
	return at.record(ref)
}

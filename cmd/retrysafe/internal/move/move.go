package move

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

var (
	// ErrKind says that one of the stores is of a kind that records cannot be moved from
	// or to.
	ErrKind = errors.New("move: records move from and to SQLite, PostgreSQL, MySQL, Redis and DynamoDB, below any seal or cache; what is in memory alone does not move")
	// ErrUnsure says that the source did not confirm whether it is closed.
	ErrUnsure = errors.New("move: it is unknown whether the source is closed, and the destination is not open; run the same move again, which finishes it or starts over")
	// ErrNotOpened says that the source is closed, and the destination is not open yet.
	ErrNotOpened = errors.New("move: the source is closed and all records are at the destination, but it is not open yet; run the same move again, which opens it")
	// ErrUnseen says that the source is closed, and that the destination did not say whether it
	// is open.
	ErrUnseen = errors.New("move: the source is closed, and it is unknown whether the destination is open; run the same move again, which opens it if it is not")
	// ErrDestination says that the error is about the destination; others are about the source.
	ErrDestination = errors.New("destination")
)

// Options configure a move. Nil and zero values are the defaults.
type Options struct {
	// From and To are how people call the two stores, without a password. The errors of
	// a closed store name the other one. Default: "another store".
	From, To string
	// Batch is how many records are copied at a time at most. Batches of large records
	// are smaller. Default 2,000.
	Batch int
	// DryRun changes nothing: it counts the records, and checks whether all of them can
	// be read and the destination is empty.
	DryRun bool
	// Progress, if set, is called when a stage begins, and after each batch except during
	// the cut. The move waits for it to return.
	Progress func(Progress)
}

// A Progress says how far a move has come.
type Progress struct {
	Stage Stage
	Report
}

// A Stage is one part of a move.
type Stage string

// The stages of a move, in their order.
const (
	Copying  Stage = "copying"  // copy all records
	Catching Stage = "catching" // copy those that were written meanwhile
	Cutting  Stage = "cutting"  // lock out all writers, and close the source
	Opening  Stage = "opening"  // open the destination
)

// A Report says what a move did.
type Report struct {
	// Records is how many records were copied, and States how many of them in each
	// state, as they were when they were first read.
	Records int
	States  map[retrysafe.State]int
	// Again is how many were copied again, because they were written meanwhile.
	Again int
	// Cut is how long the source locked out writers, including the wait for those that
	// were writing.
	Cut time.Duration
	// Took is how long the whole move took.
	Took time.Duration
	// Finished says that an earlier run had done all but the last step.
	Finished bool
}

// A movable store is one that records can be moved from and to.
type movable interface {
	retrysafe.Store
	Mover() storemove.Store
}

// Records moves all records of one store into another and closes the first for good.
// Both must be of a kind that can be moved, or the error is [ErrKind]. Open them with the
// option Moving, which accepts a closed store, or a move that was killed cannot be
// finished. Opts may be nil. With DryRun the second may be nil: it is still to be created.
//
// After an error the source serves on as if nothing had happened, unless the error is
// [ErrUnsure], [ErrNotOpened] or [ErrUnseen]: then run the same move again. See the package comment.
func Records(ctx context.Context, from, to retrysafe.Store, opts *Options) (Report, error) {
	m, err := newMove(from, to, opts)
	if err != nil {
		return Report{}, err
	}
	start := time.Now()
	if m.DryRun {
		err = m.dryRun(ctx)
	} else {
		err = m.do(ctx)
	}
	m.report.Took = time.Since(start)
	return m.report, err
}

// Abandon undoes a run that was killed before the cut: the source logs no writes any
// more, and the destination is open and empty. It fails if the source is retired.
func Abandon(ctx context.Context, from, to retrysafe.Store) error {
	m, err := newMove(from, to, nil)
	if err != nil {
		return err
	}
	filling, err := m.destination.Filling(ctx)
	if err != nil {
		return err
	}
	name, err := m.source.Follow(ctx, m.run) // so the source is not retired, and no other run can retire it
	if err != nil {
		return err
	}
	if !filling.IsZero() {
		if err = m.destination.Fill(ctx, m.run, name, m.From); err == nil {
			err = m.destination.Unfill(ctx, m.run)
		}
	}
	return errors.Join(err, m.source.Unfollow(ctx, m.run))
}

// Prepare closes an empty destination until [Records] has filled it from the same source,
// so that a process that is started on it beforehand runs nothing. The source serves on.
// Of the options it uses From. Opts may be nil. [Abandon] opens the destination again.
func Prepare(ctx context.Context, from, to retrysafe.Store, opts *Options) error {
	m, err := newMove(from, to, opts)
	if err != nil {
		return err
	}
	name, err := m.source.Follow(ctx, m.run) // the source keeps this name, by which Records knows the destination as its own
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	err = m.fill(ctx, name)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return errors.Join(err, m.source.Unfollow(ctx, m.run))
}

// move is one run.
type move struct {
	Options
	from, to    retrysafe.Store
	source      storemove.Source
	destination storemove.Destination
	run         retrysafe.Owner
	closed      bool // the destination was closed for this move before the run
	page        int  // how many records the next page has
	stage       Stage
	report      Report
}

func newMove(from, to retrysafe.Store, opts *Options) (*move, error) {
	m := &move{from: from, to: to, report: Report{States: make(map[retrysafe.State]int)}}
	if opts != nil {
		m.Options = *opts
	}
	if m.Batch < 0 {
		return nil, errors.New("move: an option is negative")
	}
	m.Batch = min(cmp.Or(m.Batch, 2000), retrysafe.MaxList)
	m.From, m.To = cmp.Or(printable.Text(m.From), "another store"), cmp.Or(printable.Text(m.To), "another store")
	source, leaves := from.(movable)
	destination, enters := to.(movable)
	if !leaves || !enters && (to != nil || !m.DryRun) {
		return nil, fmt.Errorf("%w (from %T to %T)", ErrKind, from, to)
	}
	m.source = source.Mover()
	if enters {
		m.destination = destination.Mover()
	}
	_, _ = rand.Read(m.run[:]) // it never fails
	return m, nil
}

func (m *move) do(ctx context.Context) error {
	if done, err := m.finish(ctx); done || err != nil {
		return err
	}
	name, err := m.source.Follow(ctx, m.run)
	if err != nil {
		// While Follow waited, a cut of an earlier run whose commit was pending may have committed.
		if done, again := m.finish(ctx); done || again != nil {
			return again
		}
		return m.undo(ctx, fmt.Errorf("source: %w", err))
	}
	if err := m.fill(ctx, name); err != nil {
		return m.undo(ctx, err)
	}
	if err := m.copy(ctx); err != nil {
		return m.undo(ctx, err)
	}
	if err := m.cut(ctx); err != nil {
		return m.undo(ctx, err)
	}
	return m.open(ctx, m.run)
}

// fill closes the destination, and notes whether it was closed before.
func (m *move) fill(ctx context.Context, source retrysafe.Owner) error {
	before, err := m.filling(ctx, retrysafe.Owner{})
	if err != nil {
		return err
	}
	m.closed = !before.IsZero()
	err = m.destination.Fill(ctx, m.run, source, m.From)
	if errors.Is(err, storemove.ErrNotEmpty) {
		if counted := m.notEmpty(ctx); counted != nil {
			return counted
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDestination, err)
	}
	return nil
}

// filling returns the run that fills the destination, if any. Retired is the one that has
// retired the source, if any.
func (m *move) filling(ctx context.Context, retired retrysafe.Owner) (retrysafe.Owner, error) {
	run, err := m.destination.Filling(ctx)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrDestination, err)
		if !retired.IsZero() {
			err = fmt.Errorf("%w: %w", ErrUnseen, err)
		}
	}
	return run, err
}

// finish does the last step of an earlier run, if that has done all others.
func (m *move) finish(ctx context.Context) (done bool, err error) {
	run, err := m.source.Retired(ctx)
	if err != nil || run.IsZero() {
		return false, err
	}
	filling, err := m.filling(ctx, run)
	if err != nil || filling != run {
		return false, err
	}
	m.report.Finished = true
	return true, m.open(ctx, run)
}

// undo restores both stores, as far as it can; the next run does the rest. If the source
// may be retired, undo does nothing. A destination that was closed before the run stays
// closed: processes may have been started on it since, and would run keys again.
func (m *move) undo(ctx context.Context, err error) error {
	if errors.Is(err, ErrUnsure) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if !m.closed {
		_ = m.destination.Unfill(ctx, m.run) // if it fails, the destination stays closed
	}
	_ = m.source.Unfollow(ctx, m.run) // if it fails, the log ends after a day
	return err
}

const undoTimeout = 10 * time.Second

// open is the last step. Until it is done neither store is open, so it is tried even if
// ctx has ended.
func (m *move) open(ctx context.Context, run retrysafe.Owner) error {
	m.enter(Opening)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutTimeout)
	defer cancel()
	if err := m.destination.Filled(ctx, run); err != nil {
		return fmt.Errorf("%w: %w", ErrNotOpened, err)
	}
	return nil
}

func (m *move) enter(s Stage) {
	m.stage = s
	m.notify()
}

func (m *move) notify() {
	if m.Progress != nil {
		p := Progress{m.stage, m.report}
		p.States = maps.Clone(p.States)
		m.Progress(p)
	}
}

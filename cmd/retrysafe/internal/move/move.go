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
	// ErrKind says that records of this kind of store cannot be moved.
	ErrKind = errors.New("move: records move from and to SQLite and PostgreSQL, below any seal or cache; what is in memory alone does not move")
	// ErrUnsure says that the source did not confirm whether it is closed.
	ErrUnsure = errors.New("move: nobody can say whether the source is closed, and the destination is not open; run the same move again, which finishes it or begins anew")
	// ErrNotOpened says that the source is closed, and the destination not open yet.
	ErrNotOpened = errors.New("move: the source is closed and all records are at the destination, but it is not open yet; run the same move again, which opens it")
)

// Options are what [Records] may be given. Nil and zero values are the defaults.
type Options struct {
	// From and To are how people call the two stores, without a password. Whoever
	// still uses one of them is told the other. Default: "another store".
	From, To string
	// Batch is how many records travel together at most; there are fewer where they
	// are large. Default 2,000.
	Batch int
	// DryRun changes nothing: it counts the records, and finds out whether all can be
	// read and the destination is empty.
	DryRun bool
	// Progress, if set, is told how far it is, when a stage begins and after each
	// batch but those of the cut. The move waits for it to return.
	Progress func(Progress)
}

// A Progress is how far a move has come.
type Progress struct {
	Stage Stage
	Report
}

// A Stage is what a move is about.
type Stage string

// The stages of a move, in their order.
const (
	Copying  Stage = "copying"  // every record
	Catching Stage = "catching" // what was written meanwhile
	Cutting  Stage = "cutting"  // nobody can write
	Opening  Stage = "opening"  // the destination
)

// A Report is what a move did.
type Report struct {
	// Records is how many were copied, and States how many in which state, as they
	// were when they were first read.
	Records int
	States  map[retrysafe.State]int
	// Again is how many were copied once more, because they were written meanwhile.
	Again int
	// Cut is how long the source let nobody write, with the wait for its writers.
	Cut time.Duration
	// Took is how long all of it took.
	Took time.Duration
	// Finished says that an earlier run had done all but the last step.
	Finished bool
}

// Records moves all records of one store into another and closes the first for good.
// Both must be a [Source] and a [Destination]; open them in a way that takes a closed
// store too (the option Moving), or a move that was killed cannot be finished. Opts
// may be nil.
//
// After an error the source serves on as if nothing had happened, unless it is
// [ErrUnsure] or [ErrNotOpened]: then run it again. See the package comment.
func Records(ctx context.Context, from, to retrysafe.Store, opts *Options) (Report, error) {
	m, err := newMove(from, to, opts)
	if err != nil {
		return Report{}, err
	}
	start := time.Now()
	if m.DryRun {
		err = m.look(ctx)
	} else {
		err = m.do(ctx)
	}
	m.report.Took = time.Since(start)
	return m.report, err
}

// Abandon undoes what a run has begun that was killed before the cut: the source is
// not followed any more, and the destination is open and empty. It fails if the
// source is retired.
func Abandon(ctx context.Context, from, to retrysafe.Store) error {
	m, err := newMove(from, to, nil)
	if err != nil {
		return err
	}
	filling, err := m.destination.Filling(ctx)
	if err != nil {
		return err
	}
	name, err := m.source.Follow(ctx, m.run) // so it is not retired, and nobody else can retire it
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

// A move is one run.
type move struct {
	Options
	from, to    retrysafe.Store
	source      storemove.Source
	destination storemove.Destination
	run         retrysafe.Owner
	page        int // how many records travel together at present
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
	var leaves, comes bool
	m.source, leaves = from.(storemove.Source)
	m.destination, comes = to.(storemove.Destination)
	if !leaves || !comes {
		return nil, fmt.Errorf("%w (from %T to %T)", ErrKind, from, to)
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
		// A retirement that was hanging may have ended while Follow waited for it.
		if done, again := m.finish(ctx); done || again != nil {
			return again
		}
		return m.undo(ctx, fmt.Errorf("source: %w", err))
	}
	if err := m.destination.Fill(ctx, m.run, name, m.From); err != nil {
		return m.undo(ctx, fmt.Errorf("destination: %w", err))
	}
	if err := m.copy(ctx); err != nil {
		return m.undo(ctx, err)
	}
	if err := m.cut(ctx); err != nil {
		return m.undo(ctx, err)
	}
	return m.open(ctx, m.run)
}

// finish does the last step of an earlier run that did all others.
func (m *move) finish(ctx context.Context) (done bool, err error) {
	by, err := m.source.Retired(ctx)
	if err != nil || by.IsZero() {
		return false, err
	}
	filling, err := m.destination.Filling(ctx)
	if err != nil || filling != by {
		return false, err
	}
	m.report.Finished = true
	return true, m.open(ctx, by)
}

// undo leaves both stores as they were before, if it can; what it cannot the next run
// does. If the source may be retired it undoes nothing.
func (m *move) undo(ctx context.Context, err error) error {
	if errors.Is(err, ErrUnsure) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	_ = m.destination.Unfill(ctx, m.run) // else it stays closed
	_ = m.source.Unfollow(ctx, m.run)    // else it ends by itself
	return err
}

const undoTimeout = 10 * time.Second

// open is the last step. Until it is done no store is open, so it is tried also if
// ctx has ended.
func (m *move) open(ctx context.Context, by retrysafe.Owner) error {
	m.enter(Opening)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutTimeout)
	defer cancel()
	if err := m.destination.Filled(ctx, by); err != nil {
		return fmt.Errorf("%w: %w", ErrNotOpened, err)
	}
	return nil
}

func (m *move) enter(s Stage) {
	m.stage = s
	m.tell()
}

func (m *move) tell() {
	if m.Progress != nil {
		p := Progress{m.stage, m.report}
		p.States = maps.Clone(p.States)
		m.Progress(p)
	}
}

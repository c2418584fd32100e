package move

import (
	"context"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deployment"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// dryRun checks whether a move could begin, and counts the records.
func (m *move) dryRun(ctx context.Context) error {
	run, err := m.source.Retired(ctx)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if m.to != nil {
		if err := m.lookAtDestination(ctx, run); err != nil || m.report.Finished {
			return err
		}
	}
	return m.count(ctx)
}

// lookAtDestination checks whether the records could go there: nothing is in the way, or an
// earlier run has left only its last step.
func (m *move) lookAtDestination(ctx context.Context, run retrysafe.Owner) error {
	filling, err := m.filling(ctx, run)
	if err != nil {
		return err
	}
	if m.report.Finished = !run.IsZero() && run == filling; m.report.Finished {
		return nil // only the destination has to be opened
	}
	if filling.IsZero() {
		return m.notEmpty(ctx)
	}
	return nil
}

// notEmpty returns [storemove.ErrNotEmpty] with the number of records that the destination
// holds, or nil if it holds none but those of a deployment, whose place the source's take.
func (m *move) notEmpty(ctx context.Context) error {
	some, err := m.to.List(ctx, retrysafe.Query{Limit: retrysafe.MaxList})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDestination, err)
	}
	n := 0
	for i := range some {
		if !deployment.Is(some[i].Ref) {
			n++
		}
	}
	switch {
	case len(some) == retrysafe.MaxList:
		return fmt.Errorf("%w: %w (it has %d records or more)", ErrDestination, storemove.ErrNotEmpty, n)
	case n > 0:
		return fmt.Errorf("%w: %w (records: %d)", ErrDestination, storemove.ErrNotEmpty, n)
	}
	return nil
}

// count counts the records, and refuses those that cannot be read.
func (m *move) count(ctx context.Context) error {
	m.enter(Copying)
	unreadable := 0
	err := m.pages(ctx, m.from.List, func(page []retrysafe.Record) error {
		for i := range page {
			if page[i].Version == 0 {
				unreadable++
				continue
			}
			m.report.Records++
			m.report.States[page[i].State]++
		}
		m.notify()
		return nil
	})
	if err == nil && unreadable > 0 {
		err = fmt.Errorf("source: %w: %d records; their keys would be free at the destination, so nothing would move", retrysafe.ErrUnreadable, unreadable)
	}
	return err
}

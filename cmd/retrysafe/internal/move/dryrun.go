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
	filling, err := m.destination.Filling(ctx)
	if err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	if m.report.Finished = !run.IsZero() && run == filling; m.report.Finished {
		return nil // only the destination has to be opened
	}
	if filling.IsZero() {
		some, err := m.to.List(ctx, retrysafe.Query{Limit: 3})
		if err != nil {
			return fmt.Errorf("destination: %w", err)
		}
		for i := range some {
			if !deployment.Is(some[i].Ref) { // those of the source take their place
				return storemove.ErrNotEmpty
			}
		}
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

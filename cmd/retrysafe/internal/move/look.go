package move

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// look finds out whether a move could begin, and how much there is.
func (m *move) look(ctx context.Context) error {
	by, err := m.source.Retired(ctx)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	filling, err := m.destination.Filling(ctx)
	if err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	if m.report.Finished = !by.IsZero() && by == filling; m.report.Finished {
		return nil // all that is left is to open it
	}
	if filling.IsZero() {
		some, err := m.to.List(ctx, retrysafe.Query{Limit: 1})
		if err != nil {
			return fmt.Errorf("destination: %w", err)
		}
		if len(some) > 0 {
			return errNotEmpty
		}
	}
	m.enter(Copying)
	broken := 0
	err = m.pages(ctx, func(page []retrysafe.Record) error {
		for i := range page {
			if page[i].Version == 0 {
				broken++
				continue
			}
			m.report.Records++
			m.report.States[page[i].State]++
		}
		m.tell()
		return nil
	})
	if err == nil && broken > 0 {
		err = fmt.Errorf("source: %w: %d records; their keys would be free at the destination, so nothing would move", retrysafe.ErrUnreadable, broken)
	}
	return err
}

var errNotEmpty = errors.New("move: the destination holds records already; move into an empty store")

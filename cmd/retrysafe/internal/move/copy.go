package move

import (
	"context"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

const (
	// pageBytes is the approximate size of a page in bytes.
	pageBytes = 8 << 20
	// firstPage is the number of records of the first page, when their size is unknown.
	firstPage = 200
	// few is how many written keys may be left to the cut.
	few = 100
	// maxRounds bounds the batches of written keys before the cut. A source that is
	// written faster than it can be read would never have few of them.
	maxRounds = 1000
	// cutTimeout bounds the cut. A source that cannot be closed in this time serves on.
	cutTimeout = time.Minute
)

// copy copies every record, and then those that were written meanwhile, until few are
// left.
func (m *move) copy(ctx context.Context) error {
	m.enter(Copying)
	list := m.from.List
	if source, ok := m.source.(storemove.Lister); ok {
		list = source.List
	}
	err := m.pages(ctx, list, func(page []retrysafe.Record) error {
		for i := range page {
			m.report.States[page[i].State]++
		}
		m.report.Records += len(page)
		return m.put(ctx, page, nil)
	})
	if err != nil {
		return err
	}
	m.enter(Catching)
	for range maxRounds {
		written, gone, err := m.source.Written(ctx, m.run, m.page)
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		if err := m.putAgain(ctx, written, gone); err != nil {
			return err
		}
		if len(written)+len(gone) < min(few, m.page) {
			break
		}
	}
	return nil
}

// pages calls each with all records of the source, page by page.
func (m *move) pages(ctx context.Context, list func(context.Context, retrysafe.Query) ([]retrysafe.Record, error), each func([]retrysafe.Record) error) error {
	q := retrysafe.Query{}
	for m.page = min(firstPage, m.Batch); ; {
		q.Limit = m.page
		page, err := list(ctx, q)
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		if err := each(page); err != nil {
			return err
		}
		if len(page) < q.Limit {
			return nil
		}
		q.After, m.page = page[len(page)-1].Ref, min(fit(page), m.Batch)
	}
}

// fit returns how many records of this size make a page.
func fit(page []retrysafe.Record) int {
	bytes := 0
	for i := range page {
		r := &page[i]
		bytes += len(r.Request) + len(r.Checkpoint.Data) + 500
		if r.Result != nil {
			bytes += len(r.Result.Body)
		}
	}
	return max(pageBytes/(bytes/len(page)+1), 10)
}

// cut closes the source. If it fails the source serves on, for certain unless the
// error is [ErrUnsure].
func (m *move) cut(ctx context.Context) error {
	m.enter(Cutting)
	ctx, cancel := context.WithTimeout(ctx, cutTimeout)
	defer cancel()
	start, copied := time.Now(), false
	err := m.source.Retire(ctx, m.run, m.To, func(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error {
		err := m.putAgain(ctx, written, gone)
		copied = err == nil
		return err
	})
	m.report.Cut = time.Since(start)
	switch {
	case err != nil && copied:
		return fmt.Errorf("%w: %w", ErrUnsure, err)
	case err != nil:
		return fmt.Errorf("source: %w", err)
	}
	return nil
}

// putAgain stores records that were written after they were copied.
func (m *move) putAgain(ctx context.Context, written []retrysafe.Record, gone []retrysafe.Ref) error {
	m.report.Again += len(written)
	return m.put(ctx, written, gone)
}

// put stores records at the destination. Import fails if another run has replaced this
// one.
func (m *move) put(ctx context.Context, records []retrysafe.Record, gone []retrysafe.Ref) error {
	for i := range records {
		if r := &records[i]; r.Version == 0 {
			return fmt.Errorf("source: %w: %s (%q in scope %q); its key would be free at the destination, so nothing moves", retrysafe.ErrUnreadable, r.Reason, r.Key, r.Scope)
		}
	}
	if err := m.destination.Import(ctx, m.run, records, gone); err != nil {
		return fmt.Errorf("%w: %w", ErrDestination, err)
	}
	if m.stage != Cutting { // Progress may be slow, and during the cut writers wait
		m.notify()
	}
	return nil
}

package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// Options say how two lists are compared. The zero value compares every field as text and takes no row for pending.
type Options struct {
	// Amounts names the fields that are decimals: 1.0 is 1.00 there. What is no decimal is compared as text.
	Amounts []string

	// Since and Until bound the period that is compared: a row that only one side has is pending if its time is
	// before Since, or not before Until. Zero means no bound. A row without a time is never pending.
	Since, Until time.Time
}

// Compare walks two sources side by side and adds each difference to the report, in ascending order of ids, and ends
// it. The report may be nil, if the numbers are enough; so may the options.
//
// The first rows that the two sides have of an id are compared with each other. Each further row of that id on the
// same side is a duplicate.
//
// An error of a source or of the report, a row out of order or without an id, and the end of ctx end the comparison.
// The summary has then what was counted so far, and is not Complete.
func Compare(ctx context.Context, ours, theirs Source, report Report, o *Options) (Summary, error) {
	if ours == nil || theirs == nil {
		return Summary{}, errors.New("compare ledgers: a source is missing")
	}
	if o == nil {
		o = &Options{}
	}
	if report == nil {
		report = Each(func(Difference) error { return nil })
	}
	c := comparison{options: o, report: report}
	err := c.run(ctx, ours, theirs)
	c.sum.Complete = err == nil
	if end := report.End(c.sum, err); err == nil && end != nil {
		c.sum.Complete, err = false, fmt.Errorf("end the report: %w", end)
	}
	return c.sum, err
}

type comparison struct {
	options *Options
	report  Report
	sum     Summary
}

func (c *comparison) run(ctx context.Context, ours, theirs Source) error {
	a, b := side{name: "ours", rows: &c.sum.Ours}, side{name: "theirs", rows: &c.sum.Theirs}
	defer a.open(ours)()
	defer b.open(theirs)()
	if err := a.advance(ctx); err != nil {
		return err
	}
	if err := b.advance(ctx); err != nil {
		return err
	}
	for a.more || b.more {
		if err := c.step(ctx, &a, &b); err != nil {
			return err
		}
	}
	return nil
}

// step judges the lowest id that is left, and moves on past its rows.
func (c *comparison) step(ctx context.Context, a, b *side) error {
	switch {
	case !b.more || a.more && a.entry.ID < b.entry.ID:
		if err := c.add(Difference{Kind: c.oneSided(&a.entry, OnlyOurs, PendingOurs), ID: a.entry.ID, Ours: a.entry}); err != nil {
			return err
		}
		return c.pass(ctx, a, DuplicateOurs)
	case !a.more || b.entry.ID < a.entry.ID:
		if err := c.add(Difference{Kind: c.oneSided(&b.entry, OnlyTheirs, PendingTheirs), ID: b.entry.ID, Theirs: b.entry}); err != nil {
			return err
		}
		return c.pass(ctx, b, DuplicateTheirs)
	}
	if names := c.differing(a.entry.Fields, b.entry.Fields); names == nil {
		c.sum.Same++
	} else if err := c.add(Difference{Kind: Different, ID: a.entry.ID, Ours: a.entry, Theirs: b.entry, Fields: names}); err != nil {
		return err
	}
	if err := c.pass(ctx, a, DuplicateOurs); err != nil {
		return err
	}
	return c.pass(ctx, b, DuplicateTheirs)
}

// oneSided is what a row is that the other side does not have.
func (c *comparison) oneSided(e *Entry, missing, pending Kind) Kind {
	early := !c.options.Since.IsZero() && e.Time.Before(c.options.Since)
	late := !c.options.Until.IsZero() && !e.Time.Before(c.options.Until)
	if !e.Time.IsZero() && (early || late) {
		return pending
	}
	return missing
}

// pass moves s on to its next id. The rows on the way are duplicates.
func (c *comparison) pass(ctx context.Context, s *side, kind Kind) error {
	for id := s.entry.ID; ; {
		if err := s.advance(ctx); err != nil {
			return err
		}
		if !s.more || s.entry.ID != id {
			return nil
		}
		d := Difference{Kind: kind, ID: id}
		if kind == DuplicateOurs {
			d.Ours = s.entry
		} else {
			d.Theirs = s.entry
		}
		if err := c.add(d); err != nil {
			return err
		}
	}
}

func (c *comparison) add(d Difference) error {
	*c.sum.of(d.Kind)++
	if err := c.report.Add(d); err != nil {
		return fmt.Errorf("report %s %s: %w", d.Kind, shown(d.ID), err)
	}
	return nil
}

// differing returns the names of the fields that a and b do not agree on, in order.
func (c *comparison) differing(a, b map[string]string) (names []string) {
	for name, x := range a {
		if !c.agree(name, x, b[name]) {
			names = append(names, name)
		}
	}
	for name, y := range b {
		if _, both := a[name]; !both && !c.agree(name, "", y) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (c *comparison) agree(name, x, y string) bool {
	return x == y || slices.Contains(c.options.Amounts, name) && sameAmount(x, y)
}

// A side is a source and the row it has come to.
type side struct {
	name  string
	next  func() (Entry, error, bool)
	entry Entry // the row at hand, if there are more
	more  bool
	rows  *int64
}

// open starts the source and returns what stops it.
func (s *side) open(from Source) (stop func()) {
	s.next, stop = iter.Pull2(from)
	return stop
}

// advance moves on to the next row, which must not be below the one at hand.
func (s *side) advance(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("compare ledgers: %w", err)
	}
	last := s.entry
	e, err, more := s.next()
	switch {
	case !more:
		s.entry, s.more = Entry{}, false
		return nil
	case err != nil:
		return fmt.Errorf("read %s: %w", s.name, err)
	case e.ID == "":
		return s.bad(&e, fmt.Errorf("%w: no id", ErrMalformed))
	case e.ID < last.ID:
		return s.bad(&e, fmt.Errorf("%w: %s after %s", ErrOrder, shown(e.ID), shown(last.ID)))
	}
	s.entry, s.more = e, true
	*s.rows++
	return nil
}

// bad says where a row is that cannot be used.
func (s *side) bad(e *Entry, err error) error {
	if e.Line > 0 {
		err = &LineError{e.Line, err}
	} else {
		err = fmt.Errorf("row %d: %w", *s.rows+1, err)
	}
	return fmt.Errorf("read %s: %w", s.name, err)
}

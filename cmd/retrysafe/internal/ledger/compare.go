package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Options say how two lists are compared. The zero value compares every field as text, takes no row for pending, and
// uses 4 MiB of memory and disk for 32 GiB of rows.
type Options struct {
	// Amounts names the fields that are decimals: 1.0 is 1.00 there. What is no decimal is compared as text.
	Amounts []string

	// Since and Until bound the period that is compared: a row that only one side has is pending if its time is
	// before Since, or not before Until. Zero means no bound. A row without a time is never pending.
	Since, Until time.Time

	// Lag is how much later the other side may book a payment than we do. The period of our rows begins and ends that
	// much earlier, so that the row of theirs is in a list that reaches to the end of the period.
	Lag time.Duration

	// OursSince, if it is not zero, is a further bound of our rows: one that only we have is pending if its time is before.
	OursSince time.Time

	// Presorted demands that both lists are in ascending order of their ids, compared byte by byte. A row that is not
	// is an error, [ErrOrder]. Without it the lists may have any order.
	Presorted bool

	// Dir is where the temporary database is; empty means the default directory for temporary files. Its file is
	// readable by its owner only, has no name while it is in use where the system allows that, and is gone when the
	// comparison ends, whatever ends it. The same holds for the files in which SQLite sorts. These are in the folder
	// that SQLITE_TMPDIR or TMPDIR names, or in /var/tmp.
	Dir string
	// Memory is about how many bytes of rows are held at once. Less than 64 KiB is taken as 64 KiB. A single row
	// larger than that is held all the same.
	Memory int
	// Disk is how many bytes both lists may take in the database together, where a row has its fields twice; then the
	// comparison fails with ErrTooLarge. The files may have twice that.
	Disk int64
}

const (
	defaultMemory = 4 << 20
	leastMemory   = 64 << 10
	defaultDisk   = 32 << 30
)

func (o *Options) memory() int {
	if o.Memory == 0 {
		return defaultMemory
	}
	return max(o.Memory, leastMemory)
}

func (o *Options) disk() int64 {
	if o.Disk == 0 {
		return defaultDisk
	}
	return o.Disk
}

// amount returns a field's value if it is one that is compared as a decimal.
func (o *Options) amount(name, text string) (d decimal, ok bool) {
	if !slices.Contains(o.Amounts, name) {
		return decimal{}, false
	}
	return parseDecimal(text)
}

// agree reports whether two texts of a field mean the same.
func (o *Options) agree(name, x, y string) bool {
	return x == y || slices.Contains(o.Amounts, name) && sameAmount(x, y)
}

// pending reports whether a row that only one side has is outside the period.
func (o *Options) pending(e *Entry, theirs bool) bool {
	at := e.Time
	if !theirs {
		at = at.Add(o.Lag)
	}
	early := !o.Since.IsZero() && at.Before(o.Since) || !theirs && !o.OursSince.IsZero() && e.Time.Before(o.OursSince)
	late := !o.Until.IsZero() && !at.Before(o.Until)
	return !e.Time.IsZero() && (early || late)
}

// Compare reads two sources to their ends, ours first, then adds each difference to the report, in ascending order of
// ids and then those without an id, and ends it. The report may be nil, if the numbers are enough; so may the options.
//
// The first rows that the two sides have of an id are compared with each other. Each further row of that id on the
// same side is a duplicate.
//
// An error of a source or of the report, a row without an id, and the end of ctx end the comparison. The summary has
// then what was counted so far, which is nothing before both sources are read, and is not Complete.
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
	d, err := openDatabase(ctx, c.options)
	if err != nil {
		return fmt.Errorf("compare ledgers: %w", err)
	}
	defer d.close()
	readOurs, err := c.load(ctx, d, sideOurs, ours)
	if err != nil {
		return fmt.Errorf("read ours: %w", err)
	}
	readTheirs, err := c.load(ctx, d, sideTheirs, theirs)
	if err != nil {
		return fmt.Errorf("read theirs: %w", err)
	}
	if err := c.list(ctx, d); err != nil {
		return err
	}
	return c.total(readOurs, readTheirs)
}

// load adds the rows of a source to the database and returns how many they are.
func (c *comparison) load(ctx context.Context, d *database, side int, from Source) (rows int64, err error) {
	in := inserter{database: d, side: side}
	defer in.close()
	last := ""
	for e, err := range from {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return 0, err
		}
		rows++
		switch {
		case e.ID == "":
			return 0, unusable(&e, rows, fmt.Errorf("%w: no id", ErrMalformed))
		case c.options.Presorted && e.ID < last && !e.Unidentified:
			return 0, unusable(&e, rows, fmt.Errorf("%w: %s after %s", ErrOrder, quoted(e.ID), quoted(last)))
		}
		if e.Unidentified {
			if err := d.addLoose(ctx, &e); err != nil {
				return 0, err
			}
			continue
		}
		last = e.ID
		if err := in.add(&e, c.options); err != nil {
			return 0, err
		}
	}
	return rows, in.flush()
}

// unusable says where a row is that cannot be used.
func unusable(e *Entry, row int64, err error) error {
	if e.Line > 0 {
		return &LineError{e.Line, err}
	}
	return fmt.Errorf("row %d: %w", row, err)
}

// list reports what is wrong with the ids on which the sides disagree.
func (c *comparison) list(ctx context.Context, d *database) error {
	var ours Entry // the first of ours with an id that both sides have
	for r, err := range d.disagreements(ctx) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("compare ledgers: %w", err)
		}
		switch {
		case r.first && !r.alone && !r.theirs:
			ours = r.entry
		case r.first && !r.alone && ours.Unknown != "":
			err = c.add(Difference{Kind: KindUnknownConfirmed, ID: r.entry.ID, Ours: ours, Theirs: r.entry})
		case r.first && !r.alone:
			if names := c.differing(ours.Fields, r.entry.Fields); names != nil {
				err = c.add(Difference{Kind: KindDifferent, ID: r.entry.ID, Ours: ours, Theirs: r.entry, Fields: names})
			}
		case r.theirs:
			err = c.add(Difference{Kind: c.kind(&r, KindOnlyTheirs, KindPendingTheirs, KindDuplicateTheirs), ID: r.entry.ID, Theirs: r.entry})
		default:
			err = c.add(Difference{Kind: c.kind(&r, KindOnlyOurs, KindPendingOurs, KindDuplicateOurs), ID: r.entry.ID, Ours: r.entry})
		}
		if err != nil {
			return err
		}
	}
	for e, err := range d.loose(ctx) {
		if err != nil {
			return fmt.Errorf("compare ledgers: %w", err)
		}
		kind := KindUnidentified
		switch {
		case c.options.pending(&e, false):
			kind = KindPendingOurs
		case e.Unknown != "":
			kind = KindUnknown
		}
		if err := c.add(Difference{Kind: kind, ID: e.ID, Ours: e}); err != nil {
			return err
		}
	}
	return nil
}

// kind says what is wrong with a row that has no counterpart on the other side.
func (c *comparison) kind(r *disagreeing, only, pending, duplicate Kind) Kind {
	switch {
	case !r.first:
		return duplicate
	case c.options.pending(&r.entry, r.theirs):
		return pending
	case r.entry.Unknown != "":
		return KindUnknown
	}
	return only
}

func (c *comparison) add(d Difference) error {
	*c.sum.of(d.Kind)++
	if d.Ours.ID != "" {
		c.sum.Ours++
	}
	if d.Theirs.ID != "" {
		c.sum.Theirs++
	}
	if err := c.report.Add(d); err != nil {
		return fmt.Errorf("report %s %s: %w", d.Kind, quoted(d.ID), err)
	}
	return nil
}

// differing returns the names of the fields that a and b do not agree on, in order.
func (c *comparison) differing(a, b map[string]string) (names []string) {
	for name, x := range a {
		if !c.options.agree(name, x, b[name]) {
			names = append(names, name)
		}
	}
	for name, y := range b {
		if _, both := a[name]; !both && !c.options.agree(name, "", y) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// total counts the rows that were not listed, on which the sides agree. Both sides must have the same number of them.
func (c *comparison) total(ours, theirs int64) error {
	same := ours - c.sum.Ours
	if same < 0 || same != theirs-c.sum.Theirs {
		return fmt.Errorf("compare ledgers: %w: %d rows of ours agree with %d of theirs", errDamaged, same, theirs-c.sum.Theirs)
	}
	c.sum.Ours, c.sum.Theirs, c.sum.Same = ours, theirs, same
	return nil
}

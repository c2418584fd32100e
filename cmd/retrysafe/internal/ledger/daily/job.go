package daily

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/export"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/feed"
)

// A Job is one ledger.
type Job struct {
	// Name names it in reports, metrics and the store.
	Name string
	// Ours is what is exported. Its period is the job's.
	Ours export.Options
	// Theirs is where the other side's lists are.
	Theirs feed.Feed
	// Amounts are the fields that are decimals.
	Amounts []string
	// Tolerance is how far apart the two sides may date a payment. Our export reaches that far beyond the day, and
	// our rows are judged that much later, when the other side's list of the next day is there too.
	Tolerance time.Duration
	// Zone is where a day begins and ends. Nil is UTC.
	Zone *time.Location
	// At is when the day before is compared, by the clock of Zone. A negative time is never.
	At time.Duration
	// Directory is where reports are written, and Formats which ones: text, json, html.
	Directory string
	Formats   []string
}

func (j *Job) zone() *time.Location {
	if j.Zone == nil {
		return time.UTC
	}
	return j.Zone
}

// A Result is what the comparison of a day has found.
type Result struct {
	Ledger string    `json:"ledger"`
	Day    string    `json:"day,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until,omitzero"`
	// Lists are the lists of the other side that were read.
	Lists []string `json:"lists"`
	// Notes are what a reader of the report should know besides.
	Notes   []string       `json:"notes,omitempty"`
	Summary ledger.Summary `json:"summary"`
	// Ended is when the comparison ended.
	Ended time.Time `json:"ended"`
}

// A Period is what is compared: a day, or the time between two moments. Zero moments are no bounds.
type Period struct {
	Day          Day
	Since, Until time.Time
}

// PeriodOf returns a day in the job's time zone.
func (j *Job) PeriodOf(d Day) Period {
	return Period{d, d.start(j.zone()), d.add(1).start(j.zone())}
}

// A Comparison is a period whose lists were found.
type Comparison struct {
	job    *Job
	period Period
	lists  *feed.Lists
	ours   export.Options
	opts   ledger.Options
	result Result
}

// Find finds the lists of a period. Its error wraps [feed.ErrNotYet] if one is not there yet.
func (j *Job) Find(ctx context.Context, p Period) (*Comparison, error) {
	c := &Comparison{job: j, period: p, ours: j.Ours}
	c.opts = ledger.Options{Amounts: j.Amounts, Since: p.Since, Until: p.Until, Lag: j.Tolerance}
	c.result = Result{Ledger: j.Name, Since: p.Since, Until: p.Until}
	over := feed.Period{Since: p.Since, Until: p.Until}
	if p.Day != (Day{}) {
		c.result.Day, over.Day, over.Before = p.Day.String(), p.Day.String(), p.Day.add(-1).String()
	}
	if !p.Since.IsZero() {
		c.ours.Since, over.From = p.Since.Add(-2*j.Tolerance), p.Since.Add(-2*j.Tolerance)
	}
	if !p.Until.IsZero() {
		c.ours.Until, over.To = p.Until.Add(j.Tolerance), p.Until
	}
	var err error
	if c.lists, err = j.Theirs.Find(ctx, &over, j.Tolerance > 0 && p.Day != (Day{})); err != nil {
		return nil, err
	}
	for _, one := range c.lists.All {
		c.result.Lists = append(c.result.Lists, one.Name)
	}
	if c.lists.Missing != "" {
		// Rows of ours from the end of the day before cannot be judged without that list, though this day's list may
		// have some of them.
		c.opts.OursSince = p.Since
		c.result.Notes = append(c.result.Notes, fmt.Sprintf("their list of %s is not there, so our rows of the last %v of that day were not judged", c.lists.Missing, j.Tolerance))
	}
	return c, nil
}

// Heading says what is compared.
func (c *Comparison) Heading() ledger.Heading {
	h := ledger.Heading{Title: "ledger " + c.job.Name}
	switch {
	case c.result.Day != "":
		h.Title += ", " + c.result.Day
		h.Lines = append(h.Lines, fmt.Sprintf("period: %s to %s (%s)", c.period.Since.Format(time.RFC3339), c.period.Until.Format(time.RFC3339), c.job.zone()))
	case !c.period.Since.IsZero() || !c.period.Until.IsZero():
		h.Lines = append(h.Lines, fmt.Sprintf("period: %s to %s", bound(c.period.Since), bound(c.period.Until)))
	}
	if c.job.Tolerance > 0 {
		h.Lines = append(h.Lines, fmt.Sprintf("tolerance: %v; our rows of the last %v are judged on the next day", c.job.Tolerance, c.job.Tolerance))
	}
	for _, op := range c.job.Ours.Operations {
		h.Lines = append(h.Lines, "ours: "+op)
	}
	for _, name := range c.result.Lists {
		h.Lines = append(h.Lines, "theirs: "+name)
	}
	h.Lines = append(h.Lines, c.result.Notes...)
	return h
}

func bound(t time.Time) string {
	if t.IsZero() {
		return "…"
	}
	return t.Format(time.RFC3339)
}

// Run compares, and hands what it finds to the report. The result is complete only if there is no error.
func (c *Comparison) Run(ctx context.Context, s retrysafe.Store, report ledger.Report) (Result, error) {
	var err error
	c.result.Summary, err = ledger.Compare(ctx, export.Records(ctx, s, c.ours), c.lists.Source(), withoutPending{report}, &c.opts)
	c.result.Ended = time.Now().UTC()
	return c.result, err
}

// withoutPending leaves rows outside the period to the comparison of their own day. They are counted and not listed: a
// list that reaches back for months would fill each day's report with them.
type withoutPending struct{ ledger.Report }

func (r withoutPending) Add(d ledger.Difference) error {
	if d.Kind == ledger.KindPendingOurs || d.Kind == ledger.KindPendingTheirs {
		return nil
	}
	return r.Report.Add(d)
}

// Check says what is wrong with the job, without opening anything.
func (j *Job) Check() error {
	switch {
	case j.Name == "":
		return errors.New("a ledger needs a name")
	case len(j.Ours.Operations) == 0:
		return errors.New("name the operations to compare")
	case j.Tolerance < 0:
		return errors.New("the tolerance is negative")
	case j.Tolerance > 0 && j.Theirs.Columns.Time == "":
		return errors.New("a tolerance needs the time of their rows")
	case j.At >= 24*time.Hour:
		return errors.New("the time is not one of a day")
	}
	return j.Theirs.Check()
}

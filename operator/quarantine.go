package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Suspects are the records that a restored backup, or a second primary, has made
// doubtful.
type Suspects struct {
	// ID, By and Why are as those of an [Action]. Who repeats a quarantine that
	// was cut short under its ID goes on where it stopped.
	ID, By, Why string
	// Since leaves out what was last written well before it. Zero leaves out
	// nothing, which is right after a restored backup: also a key that was made
	// retryable long before the backup may have run in the time that is lost.
	// After a split brain it is when that began.
	Since time.Time
	// Until leaves out what was written at it or later, by traffic that was let in
	// too early. Zero leaves out nothing.
	Until time.Time
	// Scope, if not empty, is the only one to look at.
	Scope string
	// SpareInTx leaves out operations whose effects are all in the store's own
	// database: they were restored together, so that running them again is right.
	// It is wrong if only the keys were restored.
	SpareInTx bool
	// Progress, if not nil, is called now and then.
	Progress func(Report)
}

// A Report is what a quarantine has come to.
type Report struct {
	// Looked is how many records that are not final were looked at.
	Looked int `json:"looked"`
	// Quarantined is how many were set aside; for a survey, how many would be. One
	// that was cut short may have set a page more aside than it had time to count.
	Quarantined int `json:"quarantined"`
	// Moved is how many changed under its hands and were left to whoever works on
	// them.
	Moved int `json:"moved"`
	// Unreadable is how many could not be read. They are refused to everybody.
	Unreadable int `json:"unreadable"`

	after retrysafe.Ref // where it stands
}

type plainReport Report

type reportJSON struct {
	plainReport
	After *refJSON `json:"after,omitempty"`
}

// MarshalJSON keeps where the quarantine stands.
func (r Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(reportJSON{plainReport(r), wire(r.after)})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (r *Report) UnmarshalJSON(b []byte) error {
	var w reportJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*r = Report(w.plainReport)
	r.after = w.After.ref()
	return nil
}

// Quarantine sets aside as Unknown what the store says has not happened yet,
// where the store itself is in doubt: accepted, in progress and retryable keys as a
// restored backup shows them may have run in the time that is lost. From then on
// no retry runs them; resolvers and operators find out, and an owner that has lived
// through it may still settle its own.
//
// Completed answers stay: they were given, and are true. What it cannot do is bring
// back the keys that were created in the lost time. They are free, and a retry runs
// them again; only the other side's ledger, or clients that say when they first
// sent a request, can tell.
//
// Run it before traffic is let in, and [Desk.Survey] before it. It is one
// compare-and-swap for each record, and may be run again at any time: what it has
// set aside it does not find a second time. When ctx ends it stops after a page.
func (d *Desk) Quarantine(ctx context.Context, s Suspects) (Entry, error) {
	const verb = "quarantine"
	if err := who(&s.ID, s.By, s.Why); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", verb, err)
	}
	e := Entry{ID: s.ID, By: s.By, Verb: verb, Why: s.Why, Ref: retrysafe.Ref{Scope: s.Scope}}
	f := fingerprint(verb, s.By, s.Why, s.Scope, s.Since.UTC().String(), s.Until.UTC().String(), strconv.FormatBool(s.SpareInTx))
	caller := ctx
	return d.record(ctx, e, f, func(ctx context.Context, x *retrysafe.Execution, e *Entry) error {
		var before Entry
		if err := json.Unmarshal(x.Checkpoint().Data, &before); err != nil {
			return err
		}
		if e.Report = before.Report; e.Report == nil {
			e.Report = new(Report)
		}
		for {
			if err := caller.Err(); err != nil {
				return err
			}
			more, err := d.page(ctx, &s, e.Report, d.setAside)
			if err != nil {
				return err
			}
			if s.Progress != nil {
				s.Progress(*e.Report)
			}
			if !more {
				e.Outcome, e.Report.after = Done, retrysafe.Ref{}
				return nil
			}
			if err := save(ctx, x, e); err != nil {
				return err
			}
		}
	})
}

// Survey says what [Desk.Quarantine] would do, and does nothing.
func (d *Desk) Survey(ctx context.Context, s Suspects) (Report, error) {
	var report Report
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return report, err
		}
		var err error
		more, err = d.page(ctx, &s, &report, func(_ context.Context, _ *Suspects, found []retrysafe.Record, r *Report) error {
			r.Quarantined += len(found)
			return nil
		})
		if err != nil {
			return report, fmt.Errorf("survey: %w", err)
		}
		if s.Progress != nil {
			s.Progress(report)
		}
	}
	report.after = retrysafe.Ref{}
	return report, nil
}

// margin is by how much the clocks of two servers may differ.
const margin = 5 * time.Minute

// doubtful reports whether the record is one of those.
func (s *Suspects) doubtful(r *retrysafe.Record) bool {
	switch {
	case r.IsSystem(),
		!s.Since.IsZero() && r.UpdatedAt.Before(s.Since.Add(-margin)),
		!s.Until.IsZero() && !r.UpdatedAt.Before(s.Until),
		s.SpareInTx && r.Effects == retrysafe.EffectsInTx:
		return false
	}
	return r.State == retrysafe.StateAccepted || r.State == retrysafe.StateInProgress || r.State == retrysafe.StateRetryable
}

// pageSize is how many records are listed at once.
const pageSize = 500

// page looks at the next records and does something about the doubtful ones. It
// reports whether there may be more, and counts nothing if it fails.
func (d *Desk) page(ctx context.Context, s *Suspects, r *Report, do func(context.Context, *Suspects, []retrysafe.Record, *Report) error) (bool, error) {
	list, err := d.list(ctx, retrysafe.Query{
		Scope:  s.Scope,
		States: []retrysafe.State{retrysafe.StateAccepted, retrysafe.StateInProgress, retrysafe.StateRetryable},
		After:  r.after,
		Limit:  pageSize,
	})
	if err != nil || len(list) == 0 {
		return false, err
	}
	next, found := *r, list[:0:0]
	for i := range list {
		switch {
		case !list[i].Readable():
			next.Unreadable++
		case s.doubtful(&list[i]):
			found = append(found, list[i])
		}
		if !list[i].IsSystem() {
			next.Looked++
		}
	}
	next.after = list[len(list)-1].Ref
	if err := do(ctx, s, found, &next); err != nil {
		return false, err
	}
	*r = next
	return len(list) == pageSize, nil
}

// hands is how many records are set aside at once, so that a store which commits
// them together can.
const hands = 32

func (d *Desk) setAside(ctx context.Context, s *Suspects, found []retrysafe.Record, r *Report) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for hand := range min(hands, len(found)) {
		wg.Go(func() {
			for i := hand; i < len(found); i += hands {
				ok, err := d.setAsideOne(ctx, s, found[i])
				mu.Lock()
				switch {
				case err != nil:
					failed = err
				case ok:
					r.Quarantined++
				default:
					r.Moved++
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// setAsideOne sets one record aside. It is false for one that somebody works on.
func (d *Desk) setAsideOne(ctx context.Context, s *Suspects, r retrysafe.Record) (bool, error) {
	by := (&Action{By: s.By}).author()
	var err error
	for range tries {
		next := r.Update()
		next.State, next.Term = retrysafe.StateUnknown, lookAgain
		next.Inquiry.Tries, next.Inquiry.Dead = 0, false
		next.Reason = "quarantined, because the store is in doubt"
		next.AddNote(retrysafe.Note{By: by, Text: "quarantined: " + s.Why, ID: s.ID})
		var got retrysafe.Record
		got, err = d.swap(ctx, next)
		switch {
		case err == nil:
			d.tell(r.State, &got, nil)
			return true, nil
		case errors.Is(err, retrysafe.ErrBusy), errors.Is(err, retrysafe.ErrNotFound):
			return false, nil
		case errors.Is(err, retrysafe.ErrConflict):
			if _, ok := done(&got, by, s.ID); ok {
				return true, nil
			}
			if r = got; !s.doubtful(&r) || !r.Readable() {
				return false, nil
			}
			err = nil
		}
	}
	return false, err
}

// lookAgain is when an unknown outcome is first asked about.
const lookAgain = 30 * time.Second

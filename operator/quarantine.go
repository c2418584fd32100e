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

// Suspects selects the records that a restored backup or a split brain has made
// doubtful.
type Suspects struct {
	// ID, By and Why are as in [Action]. A quarantine that was interrupted and is
	// repeated under its ID goes on where it stopped.
	ID, By, Why string
	// Since excludes records last written well before it. Zero excludes none, which is
	// right after a restored backup: even a key that became retryable long before the
	// backup may have run in the lost time. After a split brain, Since is when the
	// split began.
	Since time.Time
	// Until excludes records written at it or later, by traffic that was let in too
	// early. Zero excludes none.
	Until time.Time
	// Scope, if not empty, selects the records of one scope.
	Scope string
	// SpareInTx excludes operations whose effects are all in the store's own database:
	// keys and effects were restored together, so running them again is right. Do not
	// set it if only the keys were restored.
	SpareInTx bool
	// Progress, if not nil, is called after each page.
	Progress func(Report)
}

// A Report is the result of a quarantine, so far.
type Report struct {
	// Looked is how many records that are not final were read.
	Looked int `json:"looked"`
	// Quarantined is how many were quarantined; for a survey, how many would be. A
	// quarantine that was interrupted may have quarantined one page more than it has
	// counted.
	Quarantined int `json:"quarantined"`
	// Moved is how many records another process changed during the quarantine. They
	// were left to that process.
	Moved int `json:"moved"`
	// Unreadable is how many could not be read. Every request under such a key is
	// refused.
	Unreadable int `json:"unreadable"`

	after retrysafe.Ref // the last record that was read
}

type plainReport Report

type reportJSON struct {
	plainReport
	After *refJSON `json:"after,omitempty"`
}

// MarshalJSON keeps the position of the quarantine.
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

// Quarantine makes records unknown that are not final, where the store itself is in
// doubt: accepted, in progress and retryable keys as a restored backup shows them may
// have run in the lost time. From then on no retry runs them; resolvers and operators
// find out their outcomes, and an owner that is still running may settle its own
// attempt.
//
// Completed answers stay: they were given and are true. Quarantine cannot bring back
// keys that were created in the lost time. A retry under such a key runs the operation
// again. Only the provider's ledger, or clients that say when they first sent a
// request, can reveal that.
//
// Run [Service.Survey] first, then Quarantine, and only then let traffic in. It is one
// compare-and-swap for each record and may be run again at any time: a quarantined
// record is not found a second time. When ctx ends it stops after the current page.
func (d *Service) Quarantine(ctx context.Context, s Suspects) (Entry, error) {
	const verb = verbQuarantine
	if err := checkAuthor(&s.ID, s.By, s.Why); err != nil {
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
				e.Outcome, e.Report.after = StatusDone, retrysafe.Ref{}
				return nil
			}
			if err := save(ctx, x, e); err != nil {
				return err
			}
		}
	})
}

// Survey counts what [Service.Quarantine] would do, and changes nothing.
func (d *Service) Survey(ctx context.Context, s Suspects) (Report, error) {
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

// margin is the clock difference between two servers that Since allows for.
const margin = 5 * time.Minute

// doubtful reports whether s selects the record.
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

// page reads the next records and calls do with the doubtful ones. It reports whether
// there may be more, and counts nothing if it fails.
func (d *Service) page(ctx context.Context, s *Suspects, r *Report, do func(context.Context, *Suspects, []retrysafe.Record, *Report) error) (bool, error) {
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

// hands is how many records are quarantined at once, so that a store with group commit
// can batch them.
const hands = 32

func (d *Service) setAside(ctx context.Context, s *Suspects, found []retrysafe.Record, r *Report) error {
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

// setAsideOne quarantines one record. It returns false for a record that another
// process holds or has changed.
func (d *Service) setAsideOne(ctx context.Context, s *Suspects, r retrysafe.Record) (bool, error) {
	a := &Action{ID: s.ID, By: s.By, Why: s.Why}
	by := a.author()
	var err error
	for range tries {
		next := quarantined(a, r, "quarantined, because the store is in doubt")
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

// quarantined returns the write that makes a record unknown.
func quarantined(a *Action, r retrysafe.Record, reason string) retrysafe.Write {
	w := r.Update()
	w.State, w.Term = retrysafe.StateUnknown, lookAgain
	w.Inquiry.Tries, w.Inquiry.Dead = 0, false
	w.Reason = reason
	a.note(&w, "quarantined")
	return w
}

// quarantining is the change of a batch that quarantines.
func quarantining(a *Action, r retrysafe.Record) (retrysafe.Write, error) {
	switch r.State {
	case retrysafe.StateAccepted, retrysafe.StateInProgress, retrysafe.StateRetryable:
		return quarantined(a, r, "quarantined by an operator"), nil
	default:
		return retrysafe.Write{}, fmt.Errorf("%w: the record is %s", ErrState, r.State)
	}
}

// lookAgain is how long a quarantined record waits for the first call of a resolver.
const lookAgain = 30 * time.Second

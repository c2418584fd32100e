package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// A Batch is one action of an operator on all records that a filter selects.
type Batch struct {
	// ID, By and Why are as in [Action]. A batch that was interrupted and is repeated
	// under its ID goes on with what still matches.
	ID, By, Why string
	// Verb is resolve, decline, release, redrive or quarantine, as the methods of
	// [Service] do it for one record. Quarantine makes records unknown that are accepted,
	// in progress or retryable. Required.
	Verb string
	// Answer is the answer that retries get, for resolve and decline. Bodiless is as in
	// [Action].
	Answer   retrysafe.Result
	Bodiless bool
	// Filter selects the records. Without States it selects those that the verb is for:
	// unknown outcomes, and for quarantine what is not final. Records in flight are
	// settled by a verb other than quarantine only if States names them and their
	// deadline has passed. Disputed records are left out. After, Limit and System do not
	// count. For quarantine Since and Until are about a record's last write, as in
	// [Suspects].
	Filter Filter
	// Rate bounds how many records are changed in a second. Zero is no bound.
	Rate int
	// Progress, if not nil, is called after each record, never concurrently.
	Progress func(BatchReport)
}

// A BatchReport is the result of a batch, so far.
type BatchReport struct {
	// Filter says what was selected, for readers of the audit.
	Filter string `json:"filter"`
	// Counted is how many records were selected.
	Counted int `json:"counted"`
	// Done is how many were changed.
	Done int `json:"done"`
	// Changed is how many had changed since they were counted, and were left as they are.
	Changed int `json:"changed"`
	// Refused is how many the verb does not apply to; the audit has an entry for each.
	Refused int `json:"refused"`
}

const verbQuarantine = "quarantine"

// batchVerbs are the verbs of a batch and the states that each applies to. The first
// number of them are selected without a filter by state.
var batchVerbs = map[string]struct {
	states   []retrysafe.State
	selected int
}{
	verbResolve:    {settleable, 1},
	verbDecline:    {settleable, 1},
	verbRelease:    {settleable, 1},
	verbRedrive:    {settleable[:1], 1},
	verbQuarantine: {[]retrysafe.State{retrysafe.StateAccepted, retrysafe.StateInProgress, retrysafe.StateRetryable}, 3},
}

// settleable are the states of a record whose outcome an operator may know.
var settleable = []retrysafe.State{retrysafe.StateUnknown, retrysafe.StateInProgress, retrysafe.StateAccepted}

// check completes the batch and reports an invalid field.
func (b *Batch) check() error {
	verb, ok := batchVerbs[b.Verb]
	if !ok {
		return fmt.Errorf("%w: Verb must be resolve, decline, release, redrive or quarantine", ErrInvalid)
	}
	if b.Verb == verbResolve || b.Verb == verbDecline {
		if err := checkAnswer(&b.Answer, b.Bodiless); err != nil {
			return err
		}
	}
	if b.Rate < 0 {
		return fmt.Errorf("%w: Rate must not be negative", ErrInvalid)
	}
	for _, s := range b.Filter.States {
		if !slices.Contains(verb.states, s) {
			return fmt.Errorf("%w: %s does not apply to records that are %s", ErrInvalid, b.Verb, s)
		}
	}
	if len(b.Filter.States) == 0 {
		b.Filter.States = verb.states[:verb.selected]
	}
	b.Filter.written = b.Verb == verbQuarantine
	return nil
}

// selects reports whether the batch is for this record.
func (b *Batch) selects(r *retrysafe.Record) bool {
	inFlight := r.State == retrysafe.StateInProgress || r.State == retrysafe.StateAccepted
	return !r.IsSystem() && b.Filter.selects(r) && !r.Inquiry.Disputed && (b.Verb == verbQuarantine || !inFlight || r.Due())
}

// fingerprint covers everything that says what the batch does. The rate is not part of
// it.
func (b *Batch) fingerprint() retrysafe.Fingerprint {
	return fingerprint("batch", b.Verb, b.By, b.Why, b.Filter.text(), string(storekit.AppendResult(nil, &b.Answer)))
}

// change returns what the batch makes of one record.
func (b *Batch) change() change {
	switch b.Verb {
	case verbResolve:
		return answering(retrysafe.FindingHappened, b.Answer)
	case verbDecline:
		return answering(retrysafe.FindingDeclined, b.Answer)
	case verbRelease:
		return releasing
	case verbRedrive:
		return redriving
	default:
		return quarantining
	}
}

// A Selection is what a batch would change: the records that its filter selects, each at
// the revision at which it was counted.
type Selection struct {
	// Count is how many they are.
	Count int
	// Disputed is how many records match and are left out, because a person has to
	// settle them one by one.
	Disputed int
	// Unreadable is how many records of these states cannot be read, so that it is not
	// known whether they match. They are left out.
	Unreadable int
	// Sample are the first of them.
	Sample []retrysafe.Record

	counted map[retrysafe.Ref]int64 // the revision of each
}

const (
	sampleSize = 10
	// maxBatch bounds the memory of a selection.
	maxBatch = 1_000_000
)

// Select counts what [Service.Apply] would change, and changes nothing.
func (d *Service) Select(ctx context.Context, b Batch) (*Selection, error) {
	if err := b.check(); err != nil {
		return nil, fmt.Errorf("select: %w", err)
	}
	s := &Selection{counted: map[retrysafe.Ref]int64{}}
	for list, err := range d.pages(ctx, b.Filter) {
		if err != nil {
			return nil, fmt.Errorf("select: %w", err)
		}
		for i := range list {
			r := &list[i]
			switch {
			case !r.Readable():
				s.Unreadable++
			case b.selects(r):
				s.counted[r.Ref] = r.Revision
				if len(s.Sample) < sampleSize {
					s.Sample = append(s.Sample, *r)
				}
			case r.Inquiry.Disputed && b.Filter.selects(r):
				s.Disputed++
			}
		}
		if s.Count = len(s.counted); s.Count > maxBatch {
			return nil, fmt.Errorf("select: %w: more than %d records match; select fewer by Operation, Since or Until", ErrInvalid, maxBatch)
		}
	}
	return s, nil
}

// Apply changes the records of a selection of the same batch, each by one
// compare-and-swap at the revision at which it was counted. A record that has changed
// since is left as it is, and counted. So never more is changed than was counted.
//
// The audit has one entry for the batch, which is stored before the first record is
// changed, and one for each record, which names the batch. The note in the record has
// the ID of that entry.
//
// When ctx ends, Apply stops after the records that it is changing. A batch that was
// interrupted goes on when it is repeated under its ID, with a new selection. A batch
// that has ended changes nothing when it is repeated, and returns its entry again.
func (d *Service) Apply(ctx context.Context, b Batch, s *Selection) (Entry, error) {
	if err := checkAuthor(&b.ID, b.By, b.Why); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", b.Verb, err)
	}
	if err := b.check(); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", b.Verb, err)
	}
	if s == nil || s.counted == nil {
		return Entry{}, fmt.Errorf("%s: %w: the selection must come from Select", b.Verb, ErrInvalid)
	}
	counts := &BatchReport{Filter: b.Filter.text(), Counted: s.Count}
	e := Entry{ID: b.ID, By: b.By, Verb: b.Verb, Why: b.Why, Ref: retrysafe.Ref{Scope: b.Filter.Scope}, Counts: counts}
	caller := ctx
	return d.record(ctx, e, b.fingerprint(), func(ctx context.Context, x *retrysafe.Execution, e *Entry) error {
		var before Entry
		if err := json.Unmarshal(x.Checkpoint().Data, &before); err != nil {
			return err
		}
		run := newBatchRun(d, &b, s, e, func() error { return save(ctx, x, e) })
		if before.Counts != nil && x.Attempt() > 1 {
			if err := run.continueFrom(ctx, &before); err != nil {
				return err
			}
		}
		if err := run.all(ctx, caller); err != nil {
			return err
		}
		e.Outcome = StatusDone
		return nil
	})
}

// keyID returns the ID of the action of a batch on one record at one revision.
func (b *Batch) keyID(ref retrysafe.Ref, revision int64) string {
	f := fingerprint("batch key", b.ID, ref.Scope, ref.Key, strconv.FormatInt(revision, 10))
	return idEncoding.EncodeToString(f.Sum[:])[:26]
}

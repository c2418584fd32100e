package recoverytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
)

// verify checks the history and returns the violations.
func (s *scene) verify(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	refs := slices.SortedFunc(maps.Keys(s.writes), func(a, b retrysafe.Ref) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Key, b.Key))
	})
	for _, ref := range refs {
		writes := s.writes[ref]
		history := slices.SortedFunc(maps.Values(writes), func(a, b write) int { return cmp.Compare(a.record.Revision, b.record.Revision) })
		s.follow(history)
		s.last(ctx, &history[len(history)-1])
		for revision := range s.seen[ref] {
			if _, ok := writes[revision]; !ok {
				s.violation("S5: %v was seen at revision %d, which no actor wrote", ref, revision)
			}
		}
	}
	for _, a := range s.shown {
		s.stands(&a)
	}
	for g, receipts := range s.ledger.effects {
		if len(receipts) > 1 {
			s.violation("S1: %d unprotected effects under %v in one generation: %q", len(receipts), g.ref, receipts)
		}
	}
	for ref, keys := range s.ledger.asked {
		if len(keys) > 1 {
			s.violation("S1: the provider was given %d keys for %v", len(keys), ref)
		}
	}
	if s.place.Begin != nil {
		s.balance(ctx)
	}
	return errors.Join(s.broken...)
}

// follow checks each write of one key against the one before it.
func (s *scene) follow(history []write) {
	var last *write
	for i := range history {
		e := &history[i]
		if broken := after(last, e, s.place.Skew); broken != "" {
			s.violation("%v, by %s at revision %d: %s", e.record.Ref, e.by, e.record.Revision, broken)
		}
		last = e
	}
}

// after returns the violation by a write that came after another; empty if there is
// none.
func after(last, e *write, skew time.Duration) string {
	now := &e.record
	if last == nil {
		if e.from != 0 {
			return fmt.Sprintf("S5: a step compared with revision %d, where there was nothing", e.from)
		}
		return ""
	}
	was := &last.record
	due := !now.UpdatedAt.Before(was.Deadline)
	if e.from == 0 { // it was created again, so it had been deleted
		switch {
		case !was.State.Forgettable():
			return fmt.Sprintf("W54, S10: it was deleted while it was %v", was.State)
		case now.UpdatedAt.Add(skew).Before(was.Deadline):
			return fmt.Sprintf("W54, S10: it was deleted while it was %v, %v before its time", was.State, was.Deadline.Sub(now.UpdatedAt))
		}
		return ""
	}
	if e.from != was.Revision {
		return fmt.Sprintf("W55, S5: a step that compared with revision %d was applied over revision %d, %v", e.from, was.Revision, was.State)
	}
	renews := e.claims && now.Attempt <= 1 && due
	switch was.State {
	case retrysafe.StateCompleted:
		if !renews {
			return fmt.Sprintf("W55, S2: an answer that is due in %v was overwritten: it is %v now, attempt %d", was.Deadline.Sub(now.UpdatedAt), now.State, now.Attempt)
		}
	case retrysafe.StateUnknown:
		if e.claims {
			return "S9: an unknown outcome was run again"
		}
		if was.UnderReview() && !now.Result.Equal(was.Result) {
			return "S2: an answer under review was changed"
		}
		if e.by == "sweeper" {
			return "S9: a sweeper moved an unknown outcome"
		}
	case retrysafe.StateInProgress:
		if (e.claims || e.by == "sweeper") && !due {
			return fmt.Sprintf("an attempt whose lease had %v left was taken away", was.Deadline.Sub(now.UpdatedAt))
		}
	case retrysafe.StateAccepted:
		if e.by == "sweeper" && !due {
			return "accepted work was given up before its time"
		}
	case retrysafe.StateExpired:
		return "no actor expires a record"
	case retrysafe.StateRetryable:
		if !e.claims && e.by != "caller" && e.by != "worker" { // an owner that was set aside may still settle it
			return fmt.Sprintf("S5: it was released and is %v now, and no claim came in between", now.State)
		}
	}
	if e.claims && !renews && now.Lapse != retrysafe.LapseRerun && now.Checkpoint.Phase != was.Checkpoint.Phase {
		return fmt.Sprintf("the next attempt does not go on from %q", was.Checkpoint.Phase)
	}
	return ""
}

// last checks that the last write of a key is what is stored, unless the key was purged
// in its time.
func (s *scene) last(ctx context.Context, e *write) {
	got, err := s.place.Store.Load(ctx, e.record.Ref)
	switch {
	case err == nil && got.Revision != e.record.Revision:
		s.violation("S5: %v is at revision %d, and the last write that was confirmed at %d", e.record.Ref, got.Revision, e.record.Revision)
	case err == nil && !got.Result.Equal(e.record.Result):
		s.violation("S2: %v has another answer than the one that was stored last", e.record.Ref)
	case errors.Is(err, retrysafe.ErrNotFound) && !e.record.State.Forgettable():
		s.violation("W54, S10: %v was deleted while it was %v", e.record.Ref, e.record.State)
	case err != nil && !errors.Is(err, retrysafe.ErrNotFound):
		s.violation("load %v: %w", e.record.Ref, err)
	case err == nil && (got.State == retrysafe.StateInProgress || got.State == retrysafe.StateAccepted):
		s.violation("L1: %v is still %v", e.record.Ref, got.State)
	}
}

// stands checks that an answer that was shown was stored, with the retention that was
// shown. The history of the key says whether it was replaced too early.
func (s *scene) stands(a *shown) {
	for _, e := range s.writes[a.ref] {
		r := &e.record
		expires := r.Deadline
		if r.UnderReview() {
			expires = time.Time{}
		}
		if (r.State == retrysafe.StateCompleted || r.UnderReview()) && expires.Equal(a.out.Expires) && r.Result.Equal(&a.out.Result) {
			return
		}
	}
	s.violation("S3, S4: %v was answered with %q, which was never stored", a.ref, a.out.Body)
}

// balance compares what transactions wrote with the answers that they stored.
func (s *scene) balance(ctx context.Context) {
	written := make(map[string]bool)
	for q := (retrysafe.Query{Scope: books}); ; {
		page, err := s.place.Store.List(ctx, q)
		if err != nil {
			s.violation("list the books: %w", err)
			return
		}
		for _, r := range page {
			written[r.Key] = true
		}
		if len(page) < q.Size() {
			break
		}
		q.After = page[len(page)-1].Ref
	}
	for ref, writes := range s.writes {
		if ref.Scope != inTxScope {
			continue
		}
		paid := make(map[generation]string)
		for _, e := range writes {
			r := &e.record
			if r.State != retrysafe.StateCompleted {
				continue
			}
			receipt, g := string(r.Result.Body), generationOf(r)
			if paid[g] != "" {
				s.violation("S1: %v was paid twice in one generation", ref)
			}
			if paid[g] = receipt; !written[receipt] {
				s.violation("S1: %v was answered, and its effect was rolled back", ref)
			}
			delete(written, receipt)
		}
	}
	for receipt := range written {
		s.violation("S1: %q was committed without its answer", receipt)
	}
}

package linear

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// A history is what all clients did to one key.
type history struct {
	key   uint32
	steps []*step
}

// histories sorts steps by keys.
func histories(steps []*step) []history {
	times(steps)
	of := map[uint32][]*step{}
	for _, s := range steps {
		switch {
		case s.Do == purge, s.End == void: // the one has no key, the other has done nothing
		case s.End == unreadable: // which is odd enough by itself
		default:
			of[s.Key] = append(of[s.Key], s)
		}
	}
	all := make([]history, 0, len(of))
	for key, steps := range of {
		all = append(all, history{key, resolved(steps)})
	}
	slices.SortFunc(all, func(a, b history) int { return cmp.Compare(a.key, b.key) })
	return all
}

// times says of each step what the store's clock had not passed when it returned:
// what is shown by the next step that began after that.
func times(steps []*step) {
	byCall := slices.SortedFunc(slices.Values(steps), func(a, b *step) int { return cmp.Compare(a.Call, b.Call) })
	latest := int64(0)
	for _, s := range steps {
		latest = max(latest, s.Got.ReadAt)
	}
	// at[i] is the earliest time that was read by those that began with byCall[i] or
	// later.
	at := make([]int64, len(byCall)+1)
	at[len(byCall)] = latest
	for i, s := range slices.Backward(byCall) {
		if at[i] = at[i+1]; s.Got.ReadAt != 0 {
			at[i] = min(at[i], s.Got.ReadAt)
		}
	}
	for _, s := range steps {
		i, _ := slices.BinarySearchFunc(byCall, s.Return, func(c *step, t int64) int {
			if c.Call <= t {
				return -1
			}
			return 1
		})
		s.until = at[i] + tick.Microseconds()
	}
}

// resolved decides what it can of steps whose end is unknown.
//
// A mark belongs to one step, so a step that has seen it proves that the first was
// applied by then. If no step has, one that leaves a record which stays is as good as
// one that was not applied: the next step would have met the record. Only a record that
// could have been purged unseen leaves both open.
func resolved(steps []*step) []*step {
	seen := map[uint64]*step{} // mark → the first step that has seen it
	for _, s := range steps {
		if s.Got.isZero() {
			continue
		}
		for _, mark := range []uint64{s.Got.Head, s.Got.Tail, s.Got.Point} {
			if first := seen[mark]; first == nil || s.Return < first.Return {
				seen[mark] = s
			}
		}
	}
	var kept []*step
	for _, s := range steps {
		if s.End == unclear || s.End == open {
			first := seen[s.Ask.Mark]
			switch {
			case !s.writes():
				continue
			case first != nil:
				s = s.ended(applied, first.Return, first.until)
			case s.Ask.State.Forgettable() && s.Ask.Term < long:
				s = s.ended(unclear, never, s.until)
			default:
				continue
			}
		}
		kept = append(kept, s)
	}
	return kept
}

// ended is the step with another end.
func (s *step) ended(as end, at, until int64) *step {
	other := *s
	other.End, other.Return, other.until = as, at, until
	return &other
}

// A history is judged in a fraction of a millisecond as a rule. To refute one can take
// any time, but most often it is wrong from early on, and then its beginning is
// refuted soon.
const (
	glance    = time.Second
	judgement = 20 * time.Second
)

// check judges at a glance, if it can.
func (h *history) check() porcupine.CheckResult {
	if h.ordered() {
		return porcupine.Ok
	}
	got := h.within(glance)
	if got != porcupine.Unknown {
		return got
	}
	if _, wrong := h.shortened(); wrong {
		return porcupine.Illegal
	}
	return porcupine.Unknown
}

func (h *history) within(limit time.Duration) porcupine.CheckResult {
	ops := make([]porcupine.Operation, len(h.steps))
	for i, s := range h.steps {
		ops[i] = porcupine.Operation{ClientId: int(s.Worker), Input: s, Call: s.Call, Return: s.Return}
	}
	return porcupine.CheckOperationsTimeout(model, ops, limit)
}

// judge says what is wrong with what the clients saw.
func judge(ctx context.Context, steps []*step, r *prove.Result, skew time.Duration) error {
	all := histories(steps)
	r.Count("keys", len(all))
	bad, hard := checkAll(ctx, all)
	undecided := 0
	for i := range hard {
		if len(bad) > 0 || ctx.Err() != nil {
			break // it is decided without them
		}
		switch hard[i].within(judgement) {
		case porcupine.Illegal:
			bad = append(bad, hard[i])
		case porcupine.Unknown:
			undecided++
		case porcupine.Ok:
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	slices.SortStableFunc(bad, func(a, b history) int { return cmp.Compare(len(a.steps), len(b.steps)) })
	for i := range bad {
		if i > 0 { // the others are as wrong, and longer
			r.Violatef("S5", refOf(bad[i].key).Key, "no order of its %d steps explains what they saw", len(bad[i].steps))
			continue
		}
		short, _ := bad[i].shortened()
		r.Violate(prove.Violation{
			Invariant: "S5", Key: refOf(short.key).Key, Trace: short.trace(),
			What: fmt.Sprintf("no order of these %d steps explains what they saw", len(short.steps)),
		})
	}
	fences(all, r)
	clocks(steps, r, skew)
	impossible(steps, r)
	if undecided > 0 {
		return fmt.Errorf("%d histories could not be judged within %v each", undecided, judgement)
	}
	return nil
}

// checkAll returns the histories that are wrong, and those that are hard to tell.
func checkAll(ctx context.Context, all []history) (bad, hard []history) {
	var mu sync.Mutex
	var judges sync.WaitGroup
	next := make(chan history)
	for range runtime.GOMAXPROCS(0) {
		judges.Go(func() {
			for h := range next {
				result := h.check()
				mu.Lock()
				switch result {
				case porcupine.Illegal:
					bad = append(bad, h)
				case porcupine.Unknown:
					hard = append(hard, h)
				case porcupine.Ok:
				}
				mu.Unlock()
			}
		})
	}
	for _, h := range all {
		if ctx.Err() != nil {
			break
		}
		next <- h
	}
	close(next)
	judges.Wait()
	return bad, hard
}

// shortened is the shortest beginning of the history that is found to be wrong, or all
// of it. A step that had not returned by then may have been applied or not.
func (h *history) shortened() (short history, wrong bool) {
	returns := make([]int64, len(h.steps))
	for i, s := range h.steps {
		returns[i] = s.Return
	}
	slices.Sort(returns)
	for _, at := range slices.Compact(returns) {
		if short = h.before(at); short.within(glance) == porcupine.Illegal {
			return short, true
		}
	}
	return *h, false
}

// before is the history as it was at some time.
func (h *history) before(at int64) history {
	some := history{key: h.key}
	for _, s := range h.steps {
		switch {
		case s.Return <= at:
			some.steps = append(some.steps, s)
		case s.Call <= at && s.writes() && (s.End == done || s.End == applied || s.End == unclear):
			some.steps = append(some.steps, s.ended(unclear, never, s.until))
		}
	}
	return some
}

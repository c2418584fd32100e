package linear

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// What an order of steps does not tell.

// fences: two writes of a key never have one revision, and the later one has the
// higher.
func fences(all []history, r *prove.Result) {
	for _, h := range all {
		var writes []*step
		by := map[int64]uint64{} // revision → the mark of the step that wrote it
		for _, s := range h.steps {
			if s.Got.isZero() || s.Do == purge {
				continue
			}
			if s.End == done && s.writes() && s.Got.Tail == s.Ask.Mark {
				writes = append(writes, s)
			}
			if s.End == withdrawn { // notIdentified else has seen it
				continue
			}
			if mark, known := by[s.Got.Revision]; known && mark != s.Got.Tail {
				r.Violate(prove.Violation{Invariant: "S5", Key: refOf(h.key).Key, What: "two writes had one revision", Trace: h.trace()})
			}
			by[s.Got.Revision] = s.Got.Tail
		}
		if a, b := backwards(writes, func(s *step) int64 { return s.Got.Revision }, -1); a != nil {
			r.Violate(prove.Violation{Invariant: "S5", Key: refOf(h.key).Key, What: "a later write had no higher revision", Trace: []string{a.String(), b.String()}})
		}
	}
}

// tick is the coarsest clock that a store may have.
const tick = time.Millisecond

// clocks: the store's time never goes back, whatever key it is asked for, by more than the
// clocks of nodes may differ where the store has none of its own.
func clocks(steps []*step, r *prove.Result, skew time.Duration) {
	read := slices.DeleteFunc(slices.Clone(steps), func(s *step) bool { return s.Got.ReadAt == 0 })
	if a, b := backwards(read, func(s *step) int64 { return s.Got.ReadAt }, (tick + skew).Microseconds()); a != nil {
		r.Violate(prove.Violation{
			Invariant: "S10", What: "the store's clock went back", Trace: []string{a.String(), b.String()},
		})
	}
}

// backwards returns two steps, the first of which had returned before the second
// began, and whose values have gone back by more than some slack.
func backwards(steps []*step, value func(*step) int64, slack int64) (a, b *step) {
	byReturn := slices.SortedFunc(slices.Values(steps), func(a, b *step) int { return cmp.Compare(a.Return, b.Return) })
	slices.SortFunc(steps, func(a, b *step) int { return cmp.Compare(a.Call, b.Call) })
	var highest *step
	n := 0
	for _, s := range steps {
		for ; n < len(byReturn) && byReturn[n].Return < s.Call; n++ {
			if highest == nil || value(byReturn[n]) > value(highest) {
				highest = byReturn[n]
			}
		}
		if highest != nil && value(s)+slack < value(highest) {
			return highest, s
		}
	}
	return nil, nil
}

// impossible: what no step may ever see.
func impossible(steps []*step, r *prove.Result) {
	for _, s := range steps {
		switch {
		case s.Got.Torn:
			r.Violate(prove.Violation{Invariant: "S5", Key: refOf(s.Key).Key, What: "a record has parts of different writes", Trace: []string{s.String()}})
		case s.End == unreadable:
			r.Violate(prove.Violation{Invariant: "S4", Key: refOf(s.Key).Key, What: "a record cannot be read", Trace: []string{s.String()}})
		case s.How == holding && (s.End == exists || s.End == busy):
			r.Violate(prove.Violation{Invariant: "S1", Key: refOf(s.Key).Key, What: "a transaction that held the key free was refused it", Trace: []string{s.String()}})
		}
	}
}

// skewOf returns by how much the times of processes may differ on a store. DynamoDB has no
// clock, so each process goes by its own.
func skewOf(store string) time.Duration {
	if strings.HasPrefix(store, "dynamodb:") {
		return 5 * time.Second
	}
	return 0
}

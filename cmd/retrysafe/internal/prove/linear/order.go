package linear

import (
	"cmp"
	"math"
	"slices"
)

// maxConfigurations bounds how long [history.ordered] searches. A history that it can
// order takes a few hundred.
const maxConfigurations = 100_000

// ordered looks for an order of the steps that explains what they saw, along the
// revisions that they have shown: a version comes after those with lower revisions, and
// the steps that saw it come between its write and the next one. Most steps show a
// revision, so that few orders are left, even if a standstill of the machine has made
// all steps concurrent. Then the search of porcupine, which does not know of revisions,
// takes time that grows exponentially with their number.
//
// True means that there is an order. False says nothing: a purge may let revisions fall.
func (h *history) ordered() bool {
	o := ordering{visited: map[configuration]struct{}{}}
	o.versions, o.others = h.byRevision()
	if len(o.others) > 64 {
		return false
	}
	o.returns = make([]int64, len(o.versions)+1)
	o.returns[len(o.versions)] = math.MaxInt64
	for i, s := range slices.Backward(o.versions) {
		o.returns[i] = min(o.returns[i+1], s.Return)
	}
	return o.search(configuration{left: 1<<len(o.others) - 1})
}

// byRevision returns the steps that show a revision, or whose write another step shows,
// in the order of the revisions, and all others.
func (h *history) byRevision() (versions, others []*step) {
	shownAs := map[uint64]int64{} // mark → the revision of the version that its step wrote
	for _, s := range h.steps {
		if !s.Got.isZero() && s.End != withdrawn {
			shownAs[s.Got.Tail] = s.Got.Revision
		}
	}
	type ranked struct {
		revision int64
		reads    bool
		*step
	}
	var all []ranked
	for _, s := range h.steps {
		written, known := shownAs[s.Ask.Mark]
		switch {
		case (s.End == done || s.End == applied) && s.writes() && known:
			all = append(all, ranked{written, false, s})
		case s.Got.isZero() || s.End == withdrawn || s.End == unclear:
			others = append(others, s)
		default:
			all = append(all, ranked{s.Got.Revision, true, s})
		}
	}
	slices.SortStableFunc(all, func(a, b ranked) int {
		reads := func(r ranked) int {
			if r.reads {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(a.revision, b.revision), cmp.Compare(reads(a), reads(b)), cmp.Compare(a.Call, b.Call))
	})
	for _, r := range all {
		versions = append(versions, r.step)
	}
	return versions, others
}

// An ordering is a search for an order.
type ordering struct {
	versions []*step // to be taken in this order
	returns  []int64 // returns[i] is when the first of versions[i:] has returned
	others   []*step
	visited  map[configuration]struct{}
}

// A configuration is what is left of a history, and the state that the rest has led to.
type configuration struct {
	next  int    // of the versions
	left  uint64 // bits of the others
	state state
}

// search reports whether the rest of the steps can be ordered.
func (o *ordering) search(c configuration) bool {
	bound := o.takeReads(&c)
	if c.next == len(o.versions) && o.onlyUnclear(c.left) {
		return true
	}
	if _, again := o.visited[c]; again || len(o.visited) >= maxConfigurations {
		return false
	}
	o.visited[c] = struct{}{}
	if c.next < len(o.versions) {
		if s := o.versions[c.next]; s.Call <= bound && o.take(c, s, configuration{next: c.next + 1, left: c.left}) {
			return true
		}
	}
	for i, s := range o.others {
		if bit := uint64(1) << i; c.left&bit != 0 && s.Call <= bound && o.take(c, s, configuration{next: c.next, left: c.left &^ bit}) {
			return true
		}
	}
	return false
}

// take searches on from every state that the step may leave behind.
func (o *ordering) take(c configuration, s *step, rest configuration) bool {
	for _, rest.state = range after(c.state, s) {
		if o.search(rest) {
			return true
		}
	}
	return false
}

// takeReads takes all steps that change nothing and fit the state: to take them later
// makes nothing easier. It returns when the first of the steps that are left has
// returned: no step that began after that may come before it.
func (o *ordering) takeReads(c *configuration) (bound int64) {
	for {
		bound = o.returns[c.next]
		for i, s := range o.others {
			if c.left&(1<<i) != 0 {
				bound = min(bound, s.Return)
			}
		}
		before := c.left
		for i, s := range o.others {
			if c.left&(1<<i) == 0 || s.Call > bound || s.End == unclear {
				continue
			}
			if next := c.state.stepped(s); len(next) == 1 && next[0] == c.state {
				c.left &^= 1 << i
			}
		}
		if c.left == before {
			return bound
		}
	}
}

// onlyUnclear reports whether none of the others that are left must have been applied.
func (o *ordering) onlyUnclear(left uint64) bool {
	for i, s := range o.others {
		if left&(1<<i) != 0 && s.End != unclear {
			return false
		}
	}
	return true
}

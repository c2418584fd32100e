package linear

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// A tale is a history written by hand: one step after the other, unless told.
type tale struct {
	steps []*step
	time  int64
}

// wrote adds a create or a swap of a record with a mark, by an owner of that name.
func (t *tale) wrote(do operation, mark, owner uint64, at, revision int64, state retrysafe.State) *step {
	s := t.add(do, done)
	s.Ask = ask{Mark: mark, Owner: owner, Revision: at, State: state, Term: long}
	s.Got = observation{Revision: revision, Owner: owner, Head: mark, Tail: mark, State: state, Deadline: revision + long, ReadAt: revision}
	return s
}

// saw adds a load of what a step has written.
func (t *tale) saw(what *step) *step {
	s := t.add(load, done)
	s.Got = what.Got
	s.Got.ReadAt = t.time
	return s
}

func (t *tale) add(do operation, as end) *step {
	t.time += 10
	s := &step{frame: frame{Worker: uint32(len(t.steps)), Key: 16, Do: do, End: as, Call: t.time, Return: t.time + 5}}
	t.steps = append(t.steps, s)
	return s
}

// swapped is wrote for a swap that keeps the head of the record.
func (t *tale) swapped(mark uint64, of *step, revision int64, state retrysafe.State) *step {
	s := t.wrote(swap, mark, of.Got.Owner, of.Got.Revision, revision, state)
	s.Got.Head = of.Got.Head
	return s
}

// due makes a step's record one that may be forgotten at once.
func due(s *step) *step {
	s.Ask.Term, s.Got.Deadline = 0, s.Got.Revision
	return s
}

// during makes a step as long as the whole tale.
func (t *tale) during(s *step) *step {
	s.Call, s.Return = 0, t.time+100
	return s
}

const (
	inProgress = retrysafe.StateInProgress
	completed  = retrysafe.StateCompleted
)

func TestPoisonedHistoriesAreRejected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tell func(t *tale)
		want string // in what is found; empty for nothing
	}{
		"a life": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			t.saw(a)
			b := t.swapped(2, a, 30, completed)
			t.saw(b)
			lost := t.add(swap, conflict)
			lost.Ask, lost.Got = ask{Mark: 3, Owner: 1, Revision: 10, State: completed, Term: long}, b.Got
		}, ""},
		"double grant": {func(t *tale) {
			t.wrote(create, 1, 1, 0, 10, inProgress)
			t.wrote(create, 2, 2, 0, 20, inProgress)
		}, "no order"},
		"double grant, at the same time": {func(t *tale) {
			a, b := t.wrote(create, 1, 1, 0, 10, inProgress), t.wrote(create, 2, 2, 0, 20, inProgress)
			t.during(a)
			t.during(b)
		}, "no order"},
		"two swaps at one revision": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			t.during(t.swapped(2, a, 20, completed))
			t.during(t.swapped(3, a, 30, completed))
			a.Call, a.Return = -10, -5
		}, "no order"},
		"lost update": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			t.swapped(2, a, 20, completed)
			t.swapped(3, a, 30, completed)
		}, "no order"},
		"stale revision": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			b := t.swapped(2, a, 20, inProgress)
			t.swapped(3, b, 30, completed).Ask.Revision = a.Got.Revision
		}, "no order"},
		"stale owner": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			t.swapped(3, a, 30, completed).Ask.Owner = 7
		}, "no order"},
		"stale read": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			t.swapped(2, a, 20, completed)
			t.saw(a)
		}, "no order"},
		"stale read, at the same time": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			b := t.swapped(2, a, 20, completed)
			r := t.saw(a)
			r.Call, r.Return = b.Call, b.Return
		}, ""},
		"refused for no reason": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			lost := t.add(swap, conflict)
			lost.Ask, lost.Got = ask{Mark: 3, Owner: 1, Revision: 10, State: completed, Term: long}, a.Got
		}, "no order"},
		"purged": {func(t *tale) {
			due(t.wrote(create, 1, 1, 0, 10, completed))
			t.add(load, missing)
		}, ""},
		"purged, not due": {func(t *tale) {
			t.wrote(create, 1, 1, 0, 10, completed)
			t.add(load, missing)
		}, "no order"},
		"purged, in flight": {func(t *tale) {
			due(t.wrote(create, 1, 1, 0, 10, inProgress))
			t.add(load, missing)
		}, "no order"},
		"resurrected": {func(t *tale) {
			a := due(t.wrote(create, 1, 1, 0, 10, completed))
			t.add(load, missing)
			t.saw(a)
		}, "no order"},
		"zombie of a purged key": {func(t *tale) {
			a := due(t.wrote(create, 1, 1, 0, 10, completed))
			t.wrote(create, 2, 2, 0, 30, inProgress)
			t.swapped(3, a, 50, completed)
		}, "no order"},
		"unclear, and applied late": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			u := t.swapped(2, a, 0, completed)
			seen := u.Got
			u.End, u.Got = unclear, observation{}
			t.saw(a)
			b := t.add(load, done)
			b.Got = seen
			b.Got.Revision, b.Got.Deadline, b.Got.ReadAt = 40, 40+long, t.time
		}, ""},
		"unclear, and taken back": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			u := t.swapped(2, a, 20, completed)
			seen := t.saw(u)
			u.End, u.Got = unclear, observation{}
			seen.Got.Deadline = 20 + long
			t.saw(a)
		}, "no order"},
		"killed": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			u := t.swapped(2, a, 20, completed)
			u.End, u.Got, u.Return = open, observation{}, never
			t.saw(a)
		}, ""},
		"rolled back": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			t.swapped(2, a, 20, completed).End = withdrawn
			t.saw(a)
		}, ""},
		"rolled back, and seen": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			b := t.swapped(2, a, 20, completed)
			t.saw(b)
			b.End = withdrawn
		}, "no order"},
		"the same create twice": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			again := t.wrote(create, 2, 1, 0, 10, inProgress)
			again.Got = a.Got
		}, ""},
		"head of another attempt": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10, inProgress)
			t.swapped(2, a, 20, completed).Got.Head = 2
		}, "no order"},
		"the revision repeats after a purge": {func(t *tale) {
			due(t.wrote(create, 1, 1, 0, 10, completed))
			t.during(t.wrote(create, 2, 2, 0, 10, inProgress))
		}, "two writes had one revision"},
		"the revision falls after a purge": {func(t *tale) {
			due(t.wrote(create, 1, 1, 0, 10, completed))
			t.wrote(create, 2, 2, 0, 9, inProgress)
		}, "no higher revision"},
		"the clock goes back": {func(t *tale) {
			a := t.wrote(create, 1, 1, 0, 10_000, inProgress)
			t.saw(a).Got.ReadAt = 11_000
			t.saw(a).Got.ReadAt = 9_000
		}, "the store's clock went back"},
		"torn": {func(t *tale) {
			t.wrote(create, 1, 1, 0, 10, inProgress).Got.Torn = true
		}, "parts of different writes"},
		"unreadable": {func(t *tale) {
			t.add(load, unreadable)
		}, "cannot be read"},
		"held, and gone": {func(t *tale) {
			s := t.wrote(create, 1, 1, 0, 10, inProgress)
			s.How, s.End, s.Got = holding, busy, observation{}
		}, "held the key free"},
	} {
		var told tale
		c.tell(&told)
		r := new(prove.Result)
		if err := judge(t.Context(), told.steps, r, 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		found := ""
		for _, v := range r.Violations {
			found += v.What + "\n" + strings.Join(v.Trace, "\n") + "\n"
		}
		if c.want == "" && found != "" || !strings.Contains(found, c.want) {
			t.Errorf("%s: want %q to be found, got %q", name, c.want, found)
		}
	}
}

// What is shown of a wrong history is its shortest wrong beginning.
func TestTraceIsShort(t *testing.T) {
	t.Parallel()
	var told tale
	a := told.wrote(create, 1, 1, 0, 10, inProgress)
	b := told.swapped(2, a, 20, inProgress)
	told.saw(a)
	for range 50 {
		told.saw(b)
	}
	r := new(prove.Result)
	if err := judge(t.Context(), told.steps, r, 0); err != nil {
		t.Fatal(err)
	}
	if r.Found != 1 || len(r.Violations[0].Trace) != 3 {
		t.Errorf("%d found: %+v", r.Found, r.Violations)
	}
}

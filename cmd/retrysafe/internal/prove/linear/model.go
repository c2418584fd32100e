package linear

import (
	"github.com/anishathalye/porcupine"

	"github.com/retrysafe/retrysafe"
)

// A state is all that the store may know of one key, as far as its users can tell.
type state struct {
	There bool
	// Fence is a revision that the record is known to have had.
	Fence int64
	// Of the record, if there is one. A Revision or Deadline of zero is one that
	// notIdentified has seen yet.
	Revision          int64
	Owner             uint64
	Head, Tail, Point uint64
	Deadline          int64
	State             retrysafe.State
}

// model is the contract of a store, for one key.
var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{state{}} },
	Step: func(at, input, _ any) []any {
		var next []any
		for _, s := range after(at.(state), input.(*step)) {
			next = append(next, s)
		}
		return next
	},
	Hash: func(at any) uint64 {
		s := at.(state)
		return s.Tail*0x9e3779b97f4a7c15 ^ uint64(s.Revision)<<1 ^ s.Owner
	},
}).ToModel()

// after returns the states that a step may leave behind, and none if it cannot have
// ended as it did. Before it, a purge may have come by.
func after(s state, at *step) []state {
	next := s.stepped(at)
	if s.There && s.State.Forgettable() && s.Deadline <= at.until {
		// The next record may have a lower revision, if its create was sent when this
		// one still lived: it is the store's clock of that moment. One that is sent later
		// may not, and no two have the same: see [fences].
		next = append(next, state{}.stepped(at)...)
	}
	return next
}

func (s state) stepped(at *step) []state {
	switch {
	case at.End == busy || at.End == full:
		return []state{s}
	case at.End == missing:
		return if1(!s.There, s)
	case at.Do == load || at.End == exists || at.End == conflict:
		return s.read(at)
	}
	next := s.written(at)
	switch at.End {
	case done:
		if at.Do == create && s.There { // the same step again, which finds itself
			next = if1(s.Owner == at.Ask.Owner, s)
		}
		return shown(next, &at.Got)
	case withdrawn:
		return if1(len(shown(next, &at.Got)) > 0, s)
	case applied:
		return next
	default:
		return append(next, s)
	}
}

func if1(holds bool, s state) []state {
	if !holds {
		return nil
	}
	return []state{s}
}

// read is what is known after a step has changed nothing, and shown what is there. A
// refused step must have been refused for a reason.
func (s state) read(at *step) []state {
	found := if1(s.There, s)
	if !at.Got.isZero() { // a transaction may refuse a create and show nothing
		found = shown(found, &at.Got)
	}
	for _, f := range found {
		expected := at.Do == swap && f.Owner == at.Ask.Owner && f.Revision == at.Ask.Revision
		itself := at.Do == create && at.How == alone && f.Owner == at.Ask.Owner
		if expected || itself {
			return nil
		}
	}
	return found
}

// shown is what is known of each state after it has shown itself as got.
func shown(states []state, got *observation) (agree []state) {
	for _, s := range states {
		if !s.There || s.Owner != got.Owner || s.Head != got.Head || s.Tail != got.Tail || s.Point != got.Point || s.State != got.State ||
			s.Deadline != 0 && s.Deadline != got.Deadline ||
			s.Revision != 0 && s.Revision != got.Revision || s.Revision == 0 && got.Revision <= s.Fence {
			continue
		}
		s.Revision, s.Fence, s.Deadline = got.Revision, got.Revision, got.Deadline
		agree = append(agree, s)
	}
	return agree
}

// written is what a create or a swap leaves behind, if it can be applied.
func (s state) written(at *step) []state {
	a := &at.Ask
	next := state{There: true, Fence: s.Fence, Owner: a.Owner, Head: a.Mark, Tail: a.Mark, State: a.State}
	if a.Point {
		next.Point = a.Mark
	}
	if at.Do == create {
		return if1(!s.There, next)
	}
	if !s.There || s.Owner != a.Owner || s.Revision != a.Revision && (s.Revision != 0 || a.Revision <= s.Fence) {
		return nil
	}
	next.Fence = a.Revision
	if a.Overwrite {
		next.Owner = a.Mark
		return []state{next}
	}
	if next.Head = s.Head; !a.SetPoint {
		next.Point = s.Point
	}
	return []state{next}
}

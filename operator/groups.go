package operator

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failreason"
)

// A Group is a number of operations that need a person for the same reason.
type Group struct {
	// State is StateUnknown, or the state of attempts and of accepted work whose deadline
	// has passed and that no sweeper has settled.
	State retrysafe.State
	// Disputed says that evidence contradicts these records: a person settles them one by
	// one, and no batch changes them.
	Disputed  bool
	Operation string
	// Reason is why the outcomes are unknown, without the parts that differ from attempt
	// to attempt. As [Filter.Reason] it selects the group.
	Reason string
	// Status is the status of the service that the attempts failed with, or zero.
	Status int
	// Count is how many they are, and Dead how many of them no resolver is asked about
	// again.
	Count, Dead int
	// Oldest is since when the first of them needs a person: since its outcome is unknown
	// ([retrysafe.Record.UnknownSince]), or its deadline has passed. Age is how long ago
	// that was by the store's clock.
	Oldest time.Time
	Age    time.Duration
}

// maxGroups bounds how many groups are kept apart. Reasons beyond it are one group for
// each operation and status, with the reason "*".
const maxGroups = 1000

// groupKey is what the records of a group have in common.
type groupKey struct {
	state             retrysafe.State
	disputed          bool
	operation, reason string
	status            int
}

// Groups returns what needs a person, the largest group first: unknown outcomes, and
// records in flight whose deadline has passed. States of the filter narrow that; its
// After and Limit do not count.
func (d *Service) Groups(ctx context.Context, f Filter) ([]Group, error) {
	all, _, err := d.GroupsUpTo(ctx, f, math.MaxInt)
	return all, err
}

// GroupsUpTo is [Service.Groups] for a page that has to be there soon: it stops after the
// page of records with which it has read limit of them. Whole says that it has counted
// all.
func (d *Service) GroupsUpTo(ctx context.Context, f Filter, limit int) (all []Group, whole bool, err error) {
	unknown, lapsed := f, f
	unknown.States = narrowed(f.States, retrysafe.StateUnknown)
	lapsed.States, lapsed.Due = narrowed(f.States, retrysafe.StateAccepted, retrysafe.StateInProgress), true
	found, read := groups{}, 0
	for _, part := range []Filter{unknown, lapsed} {
		if len(part.States) == 0 {
			continue
		}
		for list, err := range d.pages(ctx, part) {
			if err != nil {
				return nil, false, fmt.Errorf("groups: %w", err)
			}
			if read >= limit && len(list) > 0 {
				return found.sorted(), false, nil
			}
			read += len(list)
			for i := range list {
				if r := &list[i]; r.Readable() && !r.IsSystem() && part.selects(r) {
					found.add(r)
				}
			}
		}
	}
	return found.sorted(), true, nil
}

// narrowed returns those of the states that are wanted. Without any wanted it returns
// all.
func narrowed(wanted []retrysafe.State, states ...retrysafe.State) []retrysafe.State {
	if len(wanted) == 0 {
		return states
	}
	return slices.DeleteFunc(states, func(s retrysafe.State) bool { return !slices.Contains(wanted, s) })
}

type groups map[groupKey]*Group

// add counts a record.
func (all groups) add(r *retrysafe.Record) {
	k := groupKey{r.State, r.Inquiry.Disputed, r.Operation, "", 0}
	if r.State == retrysafe.StateUnknown {
		k.reason, k.status = failreason.Kind(r.Reason), failreason.Status(r.Reason)
	}
	g := all[k]
	if g == nil && len(all) >= maxGroups {
		k.reason = "*"
		g = all[k]
	}
	if g == nil {
		g = &Group{State: k.state, Disputed: k.disputed, Operation: k.operation, Reason: k.reason, Status: k.status, Oldest: since(r)}
		all[k] = g
	}
	g.Count++
	if r.Inquiry.Dead {
		g.Dead++
	}
	if at := since(r); at.Before(g.Oldest) {
		g.Oldest = at
	}
	g.Age = max(g.Age, r.ReadAt.Sub(g.Oldest))
}

// since returns since when a record needs a person.
func since(r *retrysafe.Record) time.Time {
	if r.State == retrysafe.StateUnknown {
		return r.UnknownSince()
	}
	return r.Deadline
}

func (all groups) sorted() (list []Group) {
	for _, g := range all {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), a.Oldest.Compare(b.Oldest), cmp.Compare(a.Operation, b.Operation),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.State, b.State))
	})
	return list
}

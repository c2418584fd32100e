package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

var callRules = []rule{{
	name:   "cancelled call changes nothing",
	reason: "A step whose context has ended before it begins returns an error that is no answer and changes nothing, because its caller has given up and will not settle what it started.",
	check: func(k *kit) {
		ctx, cancel := context.WithCancel(k.ctx)
		cancel()
		rec := k.create(k.record("k"))
		due := k.create(in(retrysafe.StateCompleted, k.record("due"), soon))
		k.untilDue(due)

		_, err := k.Store.Create(ctx, k.record("new"))
		k.noAnswer("Create", err)
		k.absent(retrysafe.Ref{Scope: "acct_1", Key: "new"})
		_, err = k.Store.Swap(ctx, to(retrysafe.StateCompleted, rec, later))
		k.noAnswer("Swap", err)
		k.unchanged("a cancelled Swap", rec)
		n, err := k.Store.Purge(ctx, 10)
		k.noAnswer("Purge", err)
		if n != 0 {
			k.failf("a cancelled Purge says that it deleted %d", n)
		}
		k.unchanged("a cancelled Purge", due)
		if _, err = k.Store.Load(ctx, rec.Ref); err != nil {
			k.noAnswer("Load", err)
		}
		if got, err := k.Store.List(ctx, retrysafe.Query{}); err == nil && len(got) != 2 {
			k.failf("a cancelled List returned %d of 2 records and no error", len(got))
		}
	},
}, {
	name:   "count follows the records",
	reason: "Count returns how many records a scope holds now, because a tenant's cap is checked against it.",
	needs: func(h Harness) string {
		if _, ok := h.Store.(retrysafe.Counter); !ok {
			return "the store does not count"
		}
		return ""
	},
	check: func(k *kit) {
		counts := func(when string, want map[string]int) {
			k.t.Helper()
			for scope, n := range want {
				if got, err := k.Store.(retrysafe.Counter).Count(k.ctx, scope); got != n || err != nil {
					k.failf("%s: Count(%q) is %d, %v, want %d", when, scope, got, err, n)
				}
			}
		}
		counts("empty", map[string]int{"a": 0, "": 0})
		var rec retrysafe.Record
		for i, scope := range []string{"a", "b", "a", "a", "b", "A"} {
			r := k.record(fmt.Sprintf("k%d", i))
			r.Scope = scope
			rec = k.create(r)
			if _, err := k.Store.Create(k.ctx, r); err != nil && !errors.Is(err, retrysafe.ErrExists) {
				k.failf("Create sent again: %v", err)
			}
		}
		counts("created", map[string]int{"a": 3, "b": 2, "A": 1, "c": 0, "": 0})
		rec = k.swap(to(retrysafe.StateCompleted, rec, soon))
		counts("completed", map[string]int{"a": 3, "b": 2, "A": 1})
		k.purgeOne(rec)
		counts("purged", map[string]int{"a": 3, "b": 2, "A": 0})
	},
}}

// noAnswer checks that err is an error that a caller cannot take for an answer about
// the key.
func (k *kit) noAnswer(step string, err error) {
	k.t.Helper()
	if err == nil {
		k.failf("%s with a cancelled context returned no error", step)
	}
	for _, answer := range []error{retrysafe.ErrExists, retrysafe.ErrConflict, retrysafe.ErrNotFound} {
		if errors.Is(err, answer) {
			k.failf("%s with a cancelled context returned %v", step, err)
		}
	}
}

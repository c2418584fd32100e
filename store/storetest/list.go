package storetest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

var listRules = []rule{{
	name:   "list filters",
	reason: "List returns exactly what matches scope, states and due, because a sweeper acts only on what List returns.",
	check: func(k *kit) {
		var all []retrysafe.Record
		var last retrysafe.Record
		for _, scope := range []string{"acct_1", "acct_10", "acctX1", "ACCT_1", "acct%1"} {
			for state := retrysafe.StateAccepted; state <= retrysafe.StateExpired; state++ {
				due := in(state, k.record("due "+state.String()), soon)
				rest := in(state, k.record("rest "+state.String()), later)
				due.Scope, rest.Scope = scope, scope
				last = k.create(due)
				all = append(all, last, k.create(rest))
			}
		}
		k.until(last.Ref, last.Deadline)
		for i := range all {
			all[i] = k.load(all[i].Ref)
		}
		for _, q := range []retrysafe.Query{
			{},
			{Scope: "acct_1"},
			{Scope: "acct%"},
			{Due: true},
			{Scope: "acct_1", Due: true},
			{States: []retrysafe.State{retrysafe.StateInProgress}},
			{States: []retrysafe.State{retrysafe.StateUnknown, retrysafe.StateAccepted}, Due: true},
			{Scope: "acct_10", States: []retrysafe.State{retrysafe.StateCompleted, retrysafe.StateExpired}, Due: true},
		} {
			want := make(map[retrysafe.Ref]retrysafe.Record)
			for _, r := range all {
				if storekit.Matches(&q, &r) {
					want[r.Ref] = r
				}
			}
			for _, got := range k.page(q) {
				if q.Due && !got.Due() {
					k.failf("List(%+v) returned %q, whose deadline %v is after ReadAt %v", q, got.Ref, got.Deadline, got.ReadAt)
				}
				if _, ok := want[got.Ref]; !ok {
					k.failf("List(%+v) returned %q in state %v", q, got.Ref, got.State)
				}
				k.same("listed", got, want[got.Ref])
				delete(want, got.Ref)
			}
			if len(want) > 0 {
				k.failf("List(%+v) left out %q", q, slices.Collect(maps.Keys(want)))
			}
		}
	},
}, {
	name:   "pages neither lose nor repeat",
	reason: "Paging with After visits every record once, in the same order each time, and a page is short only at the end, because a record that is skipped is never swept.",
	check: func(k *kit) {
		const records = 103
		for i := range records {
			key := fmt.Sprintf("k%d", i)
			if i%3 == 0 { // a client's key may look like an id of the store's own
				sum := sha256.Sum256([]byte(key))
				key = hex.EncodeToString(sum[:16])
			}
			r := k.record(key)
			r.Scope = fmt.Sprintf("acct_%d", i%4)
			k.create(r)
		}
		order := k.page(retrysafe.Query{Limit: 7})
		if len(order) != records {
			k.failf("pages of 7 returned %d records, want %d", len(order), records)
		}
		for _, limit := range []int{1, 50, 0, -1, 1000, retrysafe.MaxList + 1} {
			again := k.page(retrysafe.Query{Limit: limit})
			if !slices.EqualFunc(order, again, func(a, b retrysafe.Record) bool { return a.Ref == b.Ref }) {
				k.failf("pages of %d returned %d records, not the same as pages of 7", limit, len(again))
			}
		}
		if got := len(k.page(retrysafe.Query{Scope: "acct_2", Limit: 5})); got != 26 {
			k.failf("pages of one scope returned %d records, want 26", got)
		}
	},
}, {
	name:   "paging goes on when records change",
	reason: "Paging goes on behind a record that has left the selection or is gone, because a sweeper settles each page before it asks for the next one.",
	check: func(k *kit) {
		const records = 20
		var last retrysafe.Record
		for i := range records {
			r := k.record(fmt.Sprintf("k%d", i))
			r.Term = soon
			last = k.create(r)
		}
		k.untilDue(last)
		q := retrysafe.Query{States: []retrysafe.State{retrysafe.StateInProgress}, Due: true, Limit: 3}
		swept := make(map[retrysafe.Ref]bool)
		for {
			got, err := k.Store.List(k.ctx, q)
			k.want("List", err, nil)
			if len(got) == 0 {
				break
			}
			for _, r := range got {
				if swept[r.Ref] {
					k.failf("%q came twice", r.Ref)
				}
				swept[r.Ref] = true
				term := later
				if len(swept)%2 == 0 {
					term = soon
				}
				last = k.swap(to(retrysafe.StateRetryable, r, term))
			}
			k.until(last.Ref, last.UpdatedAt.Add(soon))
			if _, err := k.Store.Purge(k.ctx, 100); err != nil {
				k.failf("Purge: %v", err)
			}
			q.After = got[len(got)-1].Ref
		}
		if len(swept) != records {
			k.failf("%d of %d records were visited", len(swept), records)
		}
	},
}}

// page lists all records that q selects, page by page, and returns them in order.
func (k *kit) page(q retrysafe.Query) []retrysafe.Record {
	k.t.Helper()
	var all []retrysafe.Record
	seen := make(map[retrysafe.Ref]bool)
	for {
		got, err := k.Store.List(k.ctx, q)
		if err != nil {
			k.failf("List(%+v): %v", q, err)
		}
		if len(got) > q.Size() {
			k.failf("List(%+v) returned %d records, want %d at most", q, len(got), q.Size())
		}
		for _, r := range got {
			if seen[r.Ref] {
				k.failf("List(%+v) returned %q twice", q, r.Ref)
			}
			if seen[r.Ref] = true; r.ReadAt.IsZero() {
				k.failf("List(%+v) returned %q without ReadAt", q, r.Ref)
			}
		}
		all = append(all, got...)
		if len(got) == 0 {
			return all
		}
		q.After = got[len(got)-1].Ref
		if len(got) < q.Size() {
			if more, err := k.Store.List(k.ctx, q); len(more) > 0 || err != nil {
				k.failf("List(%+v) returned %d records behind a short page, %v", q, len(more), err)
			}
			return all
		}
	}
}

package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

var changeRules = []rule{{
	name:   "announced swap is told",
	reason: "The key of a Swap with Announce is among the changes of every handle, after each cursor from before it, because a cache on another node would return the old answer otherwise.",
	needs:  needsChanges,
	check: func(k *kit) {
		var before []string
		for i := range k.nodes() {
			before = append(before, k.present(i))
		}
		for _, key := range []string{"one", "two"} {
			w := in(retrysafe.StateCompleted, k.create(k.record(key)).Update(), later)
			rec := k.swap(w)
			next := to(retrysafe.StateRetryable, rec, later)
			next.Announce = true
			k.swap(next)
			for i := range k.nodes() {
				k.follow(i, before[i], rec.Ref)
				before[i] = k.follow(i, before[i], rec.Ref)
			}
		}
	},
}, {
	name:   "nothing else is told",
	reason: "A Swap without Announce is not among the changes, nor is one that was refused, because each key that is told costs every cache its copy.",
	needs:  needsChanges,
	check: func(k *kit) {
		before := k.present(0)
		rec := k.swap(in(retrysafe.StateCompleted, k.create(k.record("quiet")).Update(), later))
		stale := to(retrysafe.StateRetryable, rec, later)
		stale.Announce, stale.Expect.Revision = true, rec.Revision-1
		_, err := k.Store.Swap(k.ctx, stale)
		k.want("an announced Swap of another revision", err, retrysafe.ErrConflict)
		absent := stale
		absent.Key = "absent"
		_, err = k.Store.Swap(k.ctx, absent)
		k.want("an announced Swap of an absent key", err, retrysafe.ErrNotFound)

		last := k.create(k.record("last")).Update()
		last.Term, last.Announce = later, true
		k.swap(last)
		if _, told := k.told(0, before, last.Ref); len(told) != 1 {
			k.failf("the changes are %v, want the key %q alone", told, last.Ref)
		}
	},
}, {
	name:   "no announced swap is lost",
	reason: "Of announced Swaps that commit at the same time on several handles every one is among the changes, in whatever order they become visible, because a reader goes on from the last one that it saw.",
	needs:  needsChanges,
	check: func(k *kit) {
		cursor, all := k.present(0), make([]retrysafe.Ref, 24)
		records := make([]retrysafe.Record, len(all))
		for i := range all {
			records[i] = k.create(k.record(fmt.Sprintf("k%d", i)))
			all[i] = records[i].Ref
		}
		replies := race(len(all), func(i int) (retrysafe.Record, error) {
			w := beat(records[i])
			w.Announce = true
			return k.retryBusy(func() (retrysafe.Record, error) { return k.node(i).Swap(k.ctx, w) })
		})
		for i, r := range replies {
			if r.err != nil {
				k.failf("announced Swap(%q): %v", all[i], r.err)
			}
		}
		k.follow(0, cursor, all...)
	},
}, {
	name:   "changes begin with the present",
	reason: "Changes of the empty cursor returns no keys, because a cache that begins to follow holds nothing, and must not wait for what is past.",
	needs:  needsChanges,
	check: func(k *kit) {
		w := beat(k.create(k.record("past")))
		w.Announce = true
		k.swap(w)
		changed, next, err := k.Store.(retrysafe.ChangeFeed).Changes(k.ctx, "")
		if err != nil || len(changed) > 0 || next == "" {
			k.failf("Changes of the empty cursor: got %q, the cursor %q and %v", changed, next, err)
		}
	},
}, {
	name:   "unknown cursor is refused",
	reason: "Changes of a cursor that the store did not give is ErrChangesLost, because it may be that of the store before a backup was restored, and what has changed since is not known.",
	needs:  needsChanges,
	check: func(k *kit) {
		_, _, err := k.Store.(retrysafe.ChangeFeed).Changes(k.ctx, "99999999999-6e6f7468696e67")
		k.want("Changes of a cursor of another store", err, retrysafe.ErrChangesLost)
	},
}}

// needsChanges is for rules about a [retrysafe.ChangeFeed].
func needsChanges(h Harness) string {
	const lacks = "the store does not tell its changes"
	feed, ok := h.Store.(retrysafe.ChangeFeed)
	if !ok {
		return lacks
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, _, err := feed.Changes(ctx, ""); errors.Is(err, errors.ErrUnsupported) {
		return lacks
	}
	return ""
}

// nodes is the number of handles.
func (k *kit) nodes() int { return len(k.Peers) + 1 }

// present returns the cursor of now, of the i-th handle.
func (k *kit) present(i int) string {
	k.t.Helper()
	_, next, err := k.node(i).(retrysafe.ChangeFeed).Changes(k.ctx, "")
	if err != nil {
		k.failf("Changes of the empty cursor: %v", err)
	}
	return next
}

// follow reads the changes of the i-th handle after a cursor until it has read the keys,
// and returns the cursor behind them.
func (k *kit) follow(i int, cursor string, refs ...retrysafe.Ref) string {
	k.t.Helper()
	next, _ := k.told(i, cursor, refs...)
	return next
}

// told is follow, and returns the keys that it has read, each once.
func (k *kit) told(i int, cursor string, refs ...retrysafe.Ref) (next string, told map[retrysafe.Ref]bool) {
	k.t.Helper()
	told = make(map[retrysafe.Ref]bool)
	for tries := 0; ; tries++ {
		changed, next, err := k.node(i).(retrysafe.ChangeFeed).Changes(k.ctx, cursor)
		if err != nil {
			k.failf("Changes: got %v, want the keys of announced Swaps", err)
		}
		cursor = next
		for _, ref := range changed {
			told[ref] = true
		}
		missing := 0
		for _, ref := range refs {
			if !told[ref] {
				missing++
			}
		}
		if missing == 0 {
			return cursor, told
		}
		if len(changed) == 0 && tries > 3 || k.ctx.Err() != nil {
			k.failf("Changes does not return %d of %d keys of announced Swaps", missing, len(refs))
		}
		if len(changed) == 0 {
			time.Sleep(poll)
		}
	}
}

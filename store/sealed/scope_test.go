package sealed_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// The same key in two scopes is two records, which share nothing below.
func TestW73SameKeyInAnotherScope(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	a, b := full("tenant-a", "order-1"), full("tenant-b", "order-1")
	a.Owner, b.Owner = owner(1), owner(2)
	b.Request = []byte("the request of another tenant")
	create(t, s, a)
	create(t, s, b)
	same(t, load(t, s, a.Ref), a.Record)
	same(t, load(t, s, b.Ref), b.Record)
	rawA, rawB := lowered(t, below, owner(1)), lowered(t, below, owner(2))
	if rawA.Key == rawB.Key || rawA.Scope == rawB.Scope {
		t.Error("the store below sees that two tenants use the same key")
	}
}

// The name below is a keyed hash of fixed size: without the index secret no query can
// tell whether a key exists, and with another secret nothing is found.
func TestW74NameBelowIsAKeyedHash(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	ref := create(t, s, full("tenant-a", "order-1")).Ref
	name := only(t, below).Ref
	if len(name.Scope) != 43 || len(name.Key) != 43 {
		t.Errorf("name below = %q, want two hashes of 43 characters", name)
	}
	again := memstore.New(nil)
	create(t, over(t, again, ring(t, 2, 2)), full("tenant-a", "order-1"))
	if got := only(t, again).Ref; got != name {
		t.Errorf("under another key the name below is %q, want %q: a rotation must not lose keys", got, name)
	}
	if _, err := over(t, below, otherIndex(t)).Load(t.Context(), ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("load with another index secret: error = %v, want ErrNotFound", err)
	}
}

// No way of cutting a text into scope and key gives the name of another.
func TestW75NoSeparatorCollision(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	refs := []retrysafe.Ref{
		{Scope: "a:b", Key: "c"}, {Scope: "a", Key: "b:c"}, {Scope: "", Key: "a:b:c"}, {Scope: "a:b:c", Key: ""},
		{Scope: "a", Key: "bc"}, {Scope: "ab", Key: "c"}, {Scope: "", Key: "abc"}, {Scope: "abc", Key: ""},
		{Scope: "\x01a", Key: "b"}, {Scope: "\x01", Key: "ab"}, {Scope: "", Key: "\x01ab"},
	}
	for i, ref := range refs {
		r := full(ref.Scope, ref.Key)
		r.Reason = fmt.Sprint("number ", i)
		create(t, s, r)
	}
	for i, ref := range refs {
		if got, want := load(t, s, ref).Reason, fmt.Sprint("number ", i); got != want {
			t.Errorf("%q holds %q, want %q", ref, got, want)
		}
	}
	hashes := map[string]bool{}
	for _, r := range list(t, below, retrysafe.Query{}) {
		hashes[r.Key] = true
	}
	if len(hashes) != len(refs) {
		t.Errorf("%d refs have %d hashes below", len(refs), len(hashes))
	}
}

// Lists by scope, paging and counts work over hashed names.
func TestListAndCountByScope(t *testing.T) {
	t.Parallel()
	s, _ := pair(t)
	for i := range 25 {
		create(t, s, full(fmt.Sprint("tenant-", i%2), fmt.Sprint("order-", i)))
	}
	seen := map[retrysafe.Ref]bool{}
	q := retrysafe.Query{Scope: "tenant-0", Limit: 5}
	for page := list(t, s, q); len(page) > 0; page = list(t, s, q) {
		for _, r := range page {
			if r.Scope != "tenant-0" || seen[r.Ref] {
				t.Errorf("the list of tenant-0 shows %q, seen before: %t", r.Ref, seen[r.Ref])
			}
			seen[r.Ref] = true
		}
		q.After = page[len(page)-1].Ref
	}
	if len(seen) != 13 {
		t.Errorf("the list of tenant-0 has %d records, want 13", len(seen))
	}
	if got := len(list(t, s, retrysafe.Query{})); got != 25 {
		t.Errorf("the list of all has %d records, want 25", got)
	}
	n, err := s.(retrysafe.Counter).Count(t.Context(), "tenant-1")
	if n != 12 || err != nil {
		t.Errorf("Count(tenant-1) = %d, %v, want 12", n, err)
	}
}

// A sealing store counts exactly if the one below does, so that a cap on keys
// is refused at start-up and not at run time.
func TestCountsOnlyIfBelowDoes(t *testing.T) {
	t.Parallel()
	var plain struct{ retrysafe.Store }
	plain.Store = memstore.New(nil)
	if _, ok := over(t, plain, ring(t, 1, 1)).(retrysafe.Counter); ok {
		t.Error("a sealing store is a Counter over one that is none")
	}
}

// An error of the store below leaves List without a page.
func TestListError(t *testing.T) {
	t.Parallel()
	s, _ := pair(t)
	ctx, cancel := cancelled(t)
	defer cancel()
	if got, err := s.List(ctx, retrysafe.Query{}); got != nil || err == nil {
		t.Errorf("List in a cancelled context = %v, %v, want an error", got, err)
	}
}

// Purge needs no key: records that cannot be read any more are deleted in time.
func TestPurgeNeedsNoKey(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	r := full("tenant-a", "order-1")
	r.Term = 0
	create(t, s, r)
	if n, err := over(t, below, ring(t, 2, 2)).Purge(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("Purge = %d, %v, want 1", n, err)
	}
}

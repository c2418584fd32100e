package retrysafe

import "testing"

// A waiter is counted for its tenant, also in a scope that a guard has narrowed, and is
// counted off when it leaves.
func TestWaitersOfNarrowedScopesAreCountedOff(t *testing.T) {
	t.Parallel()
	w := waiterSet{most: 8}
	ref := Ref{Scope: "acme" + scopePart + "POST /payments", Key: "k"}
	for range 100 {
		on := w.join(ref)
		if on == nil {
			t.Fatal("there is no room, although none waits")
		}
		if w.tenants["acme"] != 1 {
			t.Fatalf("the waiters are counted as %v", w.tenants)
		}
		w.leave(ref, on)
	}
	stays, leaves := w.join(ref), w.join(ref)
	if w.leave(ref, leaves); w.tenants["acme"] != 1 || w.refs[ref] != stays {
		t.Errorf("after one of two has left, %v and %d wait", w.tenants, len(w.refs))
	}
	w.leave(ref, stays)
	if len(w.tenants) != 0 || len(w.refs) != 0 || w.count.Load() != 0 {
		t.Errorf("left behind: %v, %v, %d", w.tenants, w.refs, w.count.Load())
	}
}

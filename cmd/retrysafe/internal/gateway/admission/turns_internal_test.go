package admission

import (
	"context"
	"testing"
)

// A turn that comes at the moment when the wait for it ends is taken, and the caller gives it
// back. A wait that ended before leaves nothing behind.
func TestTurnThatComesAtTheLastMoment(t *testing.T) {
	t.Parallel()
	turns := NewTurns[string](1)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 30 { // of the two events, one is seen first at random
		if err := turns.Take(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if err := turns.Take(over, "a"); err == nil {
			t.Fatal("there is a second turn")
		}
		come := turns.enter("a")
		turns.Give("a")
		if err := turns.await(over, "a", come); err != nil {
			t.Fatalf("the turn that came is lost: %v", err)
		}
		turns.Give("a")
		if n := turns.Consumers(); n != 0 {
			t.Fatalf("%d consumers are still remembered", n)
		}
	}
}

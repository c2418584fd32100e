package janitor

import (
	"testing"
	"time"
)

// The question that decides about a breaker may not be asked after all, because another
// node has taken the record. Then the next question decides.
func TestProbeThatIsNotAskedIsAskedLater(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b := &breakers{
		after: 1, pause: time.Second, most: time.Minute, each: map[any]*breaker{},
		rand: func() float64 { return 0.5 }, now: func() time.Time { return now },
	}
	enter := func() func(ended) {
		t.Helper()
		leave, ok := b.enter("resolver")
		if !ok {
			t.Fatal("no question may be asked")
		}
		return leave
	}
	enter()(failed)
	now = now.Add(time.Minute)
	for range 3 {
		leave := enter()
		if _, ok := b.enter("resolver"); ok {
			t.Error("two questions decide at the same time")
		}
		leave(notAsked)
	}
	enter()(answered)
	if b.open() != 0 {
		t.Error("the breaker is open after an answer")
	}
}

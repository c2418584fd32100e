package janitor

import (
	"context"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// The question that decides about a breaker may not be asked after all, because another
// node has taken the record. Then the next question decides. One that was asked before the
// breaker opened decides nothing, however late it ends.
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
	before := enter()
	enter()(failed)
	now = now.Add(time.Minute)
	for i := range 3 {
		leave := enter()
		if i == 0 {
			before(notAsked)
		}
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

// An answer closes a breaker for good: what failed before it counts no more. Questions that
// were under way when a breaker opened do not prolong its pause.
func TestAnswerForgetsFailures(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const pause = 10 * time.Second
	b := &breakers{
		after: 3, pause: pause, most: time.Hour, each: map[any]*breaker{},
		rand: func() float64 { return 0.5 }, now: func() time.Time { return now },
	}
	ask := func(all ...ended) {
		t.Helper()
		var leave []func(ended)
		for range all {
			one, ok := b.enter("resolver")
			if !ok {
				t.Fatal("no question may be asked")
			}
			leave = append(leave, one)
		}
		for i, how := range all {
			leave[i](how)
		}
	}
	for range 3 {
		ask(failed)
		ask(failed)
		ask(answered)
	}
	for range 2 { // the second pause is as long as the first
		ask(failed, failed, failed, failed, failed)
		now = now.Add(pause - 1)
		if _, ok := b.enter("resolver"); ok {
			t.Error("a question is asked in the pause")
		}
		now = now.Add(1)
		ask(answered)
	}
}

// Operations that one resolver serves as the default share its breaker.
func TestDefaultResolverHasOneBreaker(t *testing.T) {
	t.Parallel()
	f := ResolverFunc(func(context.Context, retrysafe.Record) (retrysafe.Evidence, error) { return retrysafe.Evidence{}, nil })
	all := Resolvers{"": f, "c": f}
	key := func(operation string) any { return breakerKey(all, &retrysafe.Record{Operation: operation}) }
	if key("a") != key("b") || key("a") == key("c") {
		t.Errorf("the breakers are %v, %v, %v", key("a"), key("b"), key("c"))
	}
}

package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// A ruleFor is one promise of a contract, for a harness H, with a check that uses a kit
// K.
type ruleFor[H harness[K], K interface{ rollback() }] struct {
	name string
	// reason says in one sentence what is promised and why it matters.
	reason string
	// needs, if set, returns what the harness lacks for this rule.
	needs func(H) string
	check func(K)
}

// A harness makes the kit of a rule.
type harness[K any] interface{ kit(trial) K }

// A trial is one run of a rule.
type trial struct {
	reason string
	t      tb
	ctx    context.Context
}

// tb is what a rule needs of a [*testing.T].
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
}

// failf reports the broken promise, with what was observed, and ends the rule.
func (k *trial) failf(format string, args ...any) {
	k.t.Helper()
	k.t.Errorf("broken promise: %s\n\t%s", k.reason, fmt.Sprintf(format, args...))
	k.t.FailNow()
}

// patience is how long a rule waits for a store before it reports that the store does
// not answer, or that its clock does not move.
const patience = 2 * time.Minute

// lacks returns what the harness lacks for the rule; empty if nothing.
func (r ruleFor[H, K]) lacks(h H) string {
	if r.needs == nil {
		return ""
	}
	return r.needs(h)
}

// run tests h against the rule. It ends by t.FailNow if the promise is broken.
func (r ruleFor[H, K]) run(ctx context.Context, t tb, h H, patience time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	k := h.kit(trial{reason: r.reason, t: t, ctx: ctx})
	defer k.rollback()
	r.check(k)
}

// hold tests what open returns against rules, each a parallel subtest with a harness of
// its own.
func hold[H harness[K], K interface{ rollback() }](t *testing.T, contract string, rules []ruleFor[H, K], open func(t *testing.T) H) {
	t.Helper()
	t.Run(contract, func(t *testing.T) {
		for _, r := range rules {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				h := open(t)
				if lacks := r.lacks(h); lacks != "" {
					t.Skip(lacks)
				}
				r.run(t.Context(), t, h, patience)
			})
		}
	})
}

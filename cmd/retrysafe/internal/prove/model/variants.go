package model

import (
	"strconv"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// A Variant is the protocol, or the protocol with one thing about it changed.
type Variant struct {
	Name string
	// What is the policy, in words.
	What string
	// Defines are what the model is searched with.
	Defines []string
	// Breaks is the invariant that the variant must be seen to break, such as S1.
	// It is empty for a safe one, which must break none, and [Goal] for one that is
	// only to show that the search gets somewhere.
	Breaks string
	// Attempts is how many requests come in.
	Attempts int
}

// Goal is what a variant breaks that reaches what it should.
const Goal = "goal"

// Safe reports whether the variant must break nothing.
func (v *Variant) Safe() bool { return v.Breaks == "" }

// size is how many requests come in, in a search of the size that is asked for. A
// story needs no more than it has; and what is meant for checks that repeat something
// a million times is none.
func (v *Variant) size(env *prove.Env) int {
	switch {
	case !v.Safe() || env.N > mostAttempts:
		return v.Attempts
	case env.N > 0:
		return env.N
	case env.Full:
		return min(v.Attempts+1, modeAttempts)
	default:
		return v.Attempts
	}
}

// How many requests come in: to the modes as they are, to those with something
// added, and to those that break something or are not reduced.
const (
	modeAttempts    = 5
	closureAttempts = 4
	fewAttempts     = 3
	mostAttempts    = 6 // the model has a byte for them, the sweeper and the reconciler
)

// Variants returns all variants, those that take longest first.
func Variants() []Variant {
	all := []Variant{
		mode("keyed", "`EffectsKeyed`, any `Lapse`", "KEYED"),
		mode("in-tx", "`EffectsInTx` by `CompleteTx` and by `DoTx`, side by side, any `Lapse`", "INTX"),
		mode("unprotected", "`EffectsUnprotected`, `LapseQuarantine` or `LapseFail`", "UNPROTECTED"),

		closure("tombstone", "`EffectsUnprotected`, and the reconciler has the provider refuse an attempt before it lets the key run again", "UNPROTECTED", "TOMBSTONE"),
		closure("keyed-forgotten", "`EffectsKeyed`, and attempts in flight are deleted, as by a server that forgets a reservation that was not durable (`AsyncReserve`)", "KEYED", "REAPS_IN_FLIGHT"),
		closure("in-tx-forgotten", "`EffectsInTx`, and attempts in flight are deleted", "INTX", "REAPS_IN_FLIGHT"),
		closure("announced", "`EffectsUnprotected`, each call is announced in the record first, and what lapses unannounced runs again", "UNPROTECTED", "STARTED"),
		unreduced("keyed-unreduced", "KEYED"),
		unreduced("in-tx-unreduced", "INTX"),
		unreduced("unprotected-unreduced", "UNPROTECTED"),

		reaches("in-tx-recovers", "`EffectsInTx`: a retry can get the answer of a second attempt", "INTX", "1"),
		reaches("keyed-recovers", "`EffectsKeyed`: a retry can get the answer of a second attempt", "KEYED", "1"),
		reaches("unprotected-recovers", "`EffectsUnprotected`: a retry can get the answer that a reconciler has found", "UNPROTECTED", "Found"),
	}
	recipe := func(name, what string, breaks int, defines ...string) {
		all = append(all, unsafe(name, what, breaks, append(defines, "PLAIN")...))
	}
	recipe("sweeper-resets", "a sweeper sets a lapsed attempt back to pending, and nothing is fenced", 1, "UNPROTECTED", "RERUN", "NO_TAKEOVER", "UNFENCED")
	recipe("take-over", "a retry takes over a lock that is stale", 1, "UNPROTECTED", "RERUN", "UNFENCED")
	recipe("take-over-fenced", "the same, with a fencing token", 1, "UNPROTECTED", "RERUN")
	recipe("take-over-checked", "the same, with a fencing token and a look at the lease just before the call", 1, "UNPROTECTED", "RERUN", "LEASE_CHECK")
	recipe("reaper-in-flight", "a reaper deletes whatever is old, in flight or not", 1, "UNPROTECTED", "REAPS_IN_FLIGHT")
	recipe("not-found", "unknown, and a reconciler takes \"no such payment\" for proof; fenced", 1, "UNPROTECTED", "NOT_FOUND_IS_PROOF")
	recipe("not-found-believed", "the same: the record says that it has not happened, and it has", 9, "UNPROTECTED", "NOT_FOUND_IS_PROOF")
	recipe("announced-not-found", "each call is announced first, and a reconciler takes \"no such payment\" for proof", 1, "UNPROTECTED", "STARTED", "NOT_FOUND_IS_PROOF")
	recipe("timeout-released", "a call without a reply is taken for one that was not made", 1, "UNPROTECTED", "RELEASE_ON_TIMEOUT")
	recipe("keyed-unfenced", "a downstream key, answers built by each attempt, and nothing is fenced", 2, "KEYED", "UNFENCED")
	recipe("zombie-writes", "the same: a former owner writes", 5, "KEYED", "UNFENCED")
	recipe("fence-repeats", "revisions begin anew when a key was deleted, and owners are not compared", 1, "INTX", "FENCE_REPEATS")

	flaw := func(name, what string, breaks int, defines ...string) {
		all = append(all, unsafe(name, what, breaks, defines...))
	}
	flaw("provider-forgets", "the provider forgets its key while ours is still retried", 1, "KEYED", "PROVIDER_FORGETS")
	flaw("fail-open", "a request that gets no reply from the store runs all the same", 1, "UNPROTECTED", "FAIL_OPEN")
	flaw("refusal-ignored", "a transaction that was refused the answer can still be committed", 1, "INTX", "IGNORES_REFUSAL")
	flaw("read-around", "a commit in doubt is looked for by a read that does not wait for it", 4, "INTX", "READ_AROUND")
	flaw("answer-first", "the client is answered before the answer is stored", 3, "KEYED", "ACK_FIRST")
	flaw("blind-sweeper", "a sweeper writes over what has changed since it looked", 4, "KEYED", "BLIND_SWEEPER")
	flaw("lost-shown", "an attempt that has lost the key sends its own answer all the same", 2, "KEYED", "SHOWS_LOST")
	return all
}

func mode(name, what string, defines ...string) Variant {
	return Variant{Name: name, What: what, Defines: defines, Attempts: modeAttempts}
}

func closure(name, what string, defines ...string) Variant {
	return Variant{Name: name, What: what, Defines: defines, Attempts: closureAttempts}
}

func unreduced(name, mode string) Variant {
	what := "`" + strings.TrimSuffix(name, "-unreduced") + "`, without what keeps the search small"
	return Variant{Name: name, What: what, Defines: []string{mode, "UNREDUCED"}, Attempts: fewAttempts}
}

func reaches(name, what, mode, whose string) Variant {
	return Variant{Name: name, What: what, Defines: []string{mode, "GOAL=" + whose}, Breaks: Goal, Attempts: fewAttempts}
}

// unsafe is a variant in which only the invariant that it breaks is watched, so that
// the story is about that one.
func unsafe(name, what string, breaks int, defines ...string) Variant {
	n := strconv.Itoa(breaks)
	return Variant{Name: name, What: what, Defines: append(defines, "WATCH="+n), Breaks: "S" + n, Attempts: fewAttempts}
}

package main

import (
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

// stateOf returns the state of a record as lists show it.
func stateOf(r *retrysafe.Record) string {
	switch {
	case !readable(r):
		return "unreadable"
	case r.State == retrysafe.StateUnknown && r.Inquiry.Disputed:
		return "unknown, disputed"
	case r.State == retrysafe.StateUnknown && r.Inquiry.Dead:
		return "unknown, dead"
	case (r.State == retrysafe.StateInProgress || r.State == retrysafe.StateAccepted) && r.Due():
		return r.State.String() + ", due"
	default:
		return r.State.String()
	}
}

// readable reports whether this program knows what the record means.
func readable(r *retrysafe.Record) bool {
	return r.Version != 0 && r.Version <= retrysafe.RecordVersion && r.State.Valid()
}

// advice is what a state means, and what may be done.
type advice struct {
	means string
	next  []option
}

// An option is something that somebody may do who knows something.
type option struct{ when, command string }

// advise says what to make of a record. Again are the flags that find the store.
func advise(r *retrysafe.Record, again string) advice {
	at := fmt.Sprintf("%s %s %s", again, word(named(r.Scope)), word(named(r.Key)))
	seen := fmt.Sprintf("%s --revision %d", at, r.Revision)
	found := []option{
		{"it happened, and you have the answer that the client would have got", "retrysafe keys resolve" + seen + ` --status 201 --header 'Content-Type: application/json' --body '{"id":"..."}' --why '...'`},
		{"it was refused for good", "retrysafe keys decline" + seen + ` --status 402 --header 'Content-Type: application/json' --body '{"error":"declined"}' --why '...'`},
		{"it did not happen and never will: the other side does not know of it, and whoever ran it has ended", "retrysafe keys release" + seen + " --why '...'"},
	}
	sweep := option{"nobody sweeps: one pass of the background duties by hand", "retrysafe reconcile run" + again}
	switch {
	case !readable(r):
		return advice{means: "It cannot be read: damaged, newer than this program, or sealed with a key that is missing. It is refused to everybody (503) until it can be. Upgrade the program, or give it the key; nothing else touches it."}
	case r.State == retrysafe.StateAccepted && !r.Due():
		return advice{means: fmt.Sprintf("It is stored and waits for a worker, for another %s at most. Retries are told so (202). See that a worker runs.", span(r.Deadline.Sub(r.ReadAt)))}
	case r.State == retrysafe.StateAccepted:
		return advice{means: "No worker took it up in time. A sweeper answers it with a 408. See that workers and a sweeper run.", next: []option{sweep}}
	case r.State == retrysafe.StateInProgress && !r.Due():
		return advice{means: fmt.Sprintf("Somebody works on it: attempt %d has a lease for another %s, which it renews. Retries get 409. It ends, or its lease does; there is nothing to do.", r.Attempt, span(r.Deadline.Sub(r.ReadAt)))}
	case r.State == retrysafe.StateInProgress:
		return advice{
			means: fmt.Sprintf("Attempt %d has fallen silent, and nobody has swept it yet. A sweeper, or the next retry, makes of it what its policy says: %s. If you know better how it ended, say so.", r.Attempt, lapsesTo(r)),
			next:  append([]option{sweep}, found...),
		}
	case r.State == retrysafe.StateUnknown && r.Inquiry.Disputed:
		return advice{
			means: "Two pieces of evidence contradict each other: it was taken not to have happened, and has. Perhaps it has happened twice. Retries get 409. Look for two effects at the other side, undo one there, and then resolve it.",
			next:  found[:1],
		}
	case r.State == retrysafe.StateUnknown && r.Inquiry.Dead:
		return advice{
			means: "It may have happened, and nobody will be asked again: a person has to look. Retries get 409 and do not run it, for as long as it takes. If you know nothing for certain, do nothing: unknown is safe.",
			next:  append(found, option{"you know nothing, but the other side answers again", "retrysafe keys redrive" + seen + " --why '...'"}),
		}
	case r.State == retrysafe.StateUnknown:
		return advice{
			means: fmt.Sprintf("It may have happened. Retries get 409 and do not run it. Resolvers, if any are at work, are asked about it %s; %s", soon(r.Deadline, r.ReadAt), asked(r.Inquiry.Tries)),
			next:  found,
		}
	case r.State == retrysafe.StateRetryable:
		return advice{
			means: "It is proven not to have happened. The next request with this key runs it; there is nothing to do.",
			next:  []option{{"it has happened after all (the record becomes disputed: look for two effects)", found[0].command}},
		}
	case r.State == retrysafe.StateExpired:
		return advice{means: fmt.Sprintf("Its answer is forgotten; the key is remembered for audit and goes %s.", soon(r.Deadline, r.ReadAt))}
	default: // completed
		means := fmt.Sprintf("It is answered: every retry gets this %d. It is forgotten %s.", statusOf(r), soon(r.Deadline, r.ReadAt))
		if r.Result != nil && r.Result.Omitted {
			means = fmt.Sprintf("It was executed, with status %d; the answer was not kept, and retries are told so. It is forgotten %s.", r.Result.Status, soon(r.Deadline, r.ReadAt))
		}
		return advice{means: means, next: []option{
			{"the stored answer is wrong, it had no effect (or two are wanted), and the next request is to run anew", "retrysafe keys forget" + seen + " --why '...'"},
			{"its content must go before it expires; the key stays used", "retrysafe keys erase" + seen + " --why '...'"},
		}}
	}
}

func asked(tries int) string {
	if tries == 0 {
		return "nobody was asked so far."
	}
	return fmt.Sprintf("they were asked in vain %s so far.", many(int64(tries), "time", "times"))
}

func statusOf(r *retrysafe.Record) int {
	if r.Result == nil {
		return 0
	}
	return r.Result.Status
}

// soon is ago for what is to come, or should have.
func soon(t, now time.Time) string {
	if !t.After(now) {
		return "any moment"
	}
	return ago(t, now)
}

// lapsesTo says what a lapsed attempt becomes.
func lapsesTo(r *retrysafe.Record) string {
	next, ok := retrysafe.DecideLapse(*r)
	if !ok {
		return "nothing"
	}
	switch next.State {
	case retrysafe.StateCompleted:
		return fmt.Sprintf("an answer, %d", statusOf(&next.Record))
	case retrysafe.StateRetryable:
		return "retryable, so that the next request runs it"
	case retrysafe.StateAccepted:
		return "accepted again, for a worker"
	default:
		return "unknown, because it may have happened"
	}
}

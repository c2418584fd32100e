package pages

import (
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// lookedInto reports whether a resolver or a webhook may find out what became of unknown
// outcomes of an operation. It is false only where the process knows that there is none.
func (p *Pages) lookedInto(operation string) bool {
	return p.Facts.LookedInto == nil || p.Facts.LookedInto(operation)
}

// explain returns what the state of a record means, what a client gets now, and what
// happens at the record's deadline.
func (p *Pages) explain(r *retrysafe.Record) (meaning, client, due string) {
	left := when(r.Deadline, r.ReadAt).Rel
	ask, end := "Resolvers are asked "+left+".", "It is forgotten "+left+"."
	if r.Due() {
		ask, end = "Resolvers are due to be asked, since "+span(r.ReadAt.Sub(r.Deadline))+".", "It may be forgotten at any moment."
	}
	told := asked(r.Inquiry.Tries)
	if !p.lookedInto(r.Operation) {
		ask, told = "An operator has to settle it.", "No resolver or webhook of this process is about its operation: an operator has to settle it."
	}
	status := 0
	if r.Result != nil {
		status = r.Result.Status
	}
	switch {
	case !r.Readable():
		return "It cannot be read: it is damaged, newer than this program, or sealed with a key that is missing. Upgrade the program or give it the key.",
			"503, and nothing runs", ""
	case r.State == retrysafe.StateAccepted:
		return "It is stored and waits for a worker. Check that one runs if this takes long.", "202, try again later", "It is given up " + left + ", unless a worker claims it."
	case r.State == retrysafe.StateInProgress && !r.Due():
		return fmt.Sprintf("It is running: attempt %d holds a lease and renews it. There is nothing to do.", r.Attempt), "409, try again later", "The lease ends " + left + " unless it is renewed."
	case r.State == retrysafe.StateInProgress:
		return fmt.Sprintf("The lease of attempt %d has ended, and no sweeper has settled it yet. A sweeper or the next retry does it by its policy. If you know how it ended, say so.", r.Attempt),
			"what the policy says: " + r.Lapse.String(), "The lease ended " + left + "."
	case r.UnderReview():
		return fmt.Sprintf("Its attempt stopped without an answer. Retries get a stored %d, which never changes, and whether it happened is under review.", status),
			fmt.Sprintf("the stored %d", status), ask
	case r.State == retrysafe.StateUnknown && r.Inquiry.Disputed:
		return "Two pieces of evidence contradict each other: it was taken not to have happened, and has. Perhaps it has happened twice. Look for two effects at the provider, undo one there, and then resolve it.",
			"409, and nothing runs", "No other evidence settles it."
	case r.State == retrysafe.StateUnknown && r.Inquiry.Dead:
		return "It may have happened, and no resolver is asked again: a person has to look. If you know nothing for certain, do nothing: unknown is safe.",
			"409, and nothing runs", "No resolver is asked again."
	case r.State == retrysafe.StateUnknown:
		return "It may have happened. " + told + " If you know how it ended, say so; otherwise do nothing: unknown is safe.",
			"409, and nothing runs", ask
	case r.State == retrysafe.StateRetryable:
		return "It is proven not to have happened. There is nothing to do.", "an execution: the next request runs it", end
	case r.State == retrysafe.StateExpired:
		return "Its answer is forgotten; the key is kept for audit.", "a new run, or 410 by the policy", "It is deleted " + left + "."
	case r.Result != nil && r.Result.Omitted:
		return "It was executed, and its answer was not kept.", fmt.Sprintf("that it was executed with %d", status), end
	default:
		return "It is answered. Every retry gets this answer, byte for byte.", fmt.Sprintf("the stored %d", status), end
	}
}

func asked(tries int) string {
	if tries == 0 {
		return "No resolver was asked so far."
	}
	return "Resolvers were asked " + count(tries, "time", "times") + " and could not say."
}

// An action is one button of a key's page, with its form.
type action struct {
	Verb, Title string
	When        string // when it is right
	After       string // what a client gets afterwards; for a letter, what becomes of it
	Letter      bool
	Danger      string // what the operator confirms; empty: nothing
	Answer      bool   // the form asks for an answer
	Status      int
	Body        string // an example; the form has none of its own

	ID       string
	Revision int64
	URL      string
}

// actionsOf returns what an operator may do about a record.
func (p *Pages) actionsOf(r *retrysafe.Record) []action {
	resolve := action{
		Verb: "resolve", Title: "It happened", When: "You have found the effect at the other side, and know the answer that the client would have got.",
		After: "Every retry gets this answer. Nothing runs.", Answer: true, Status: 201, Body: `{"id": "pay_17", "status": "succeeded"}`,
	}
	decline := action{
		Verb: "decline", Title: "It was refused for good", When: "The other side has refused it, and no retry can change that.",
		After: "Every retry gets this refusal. Nothing runs.", Answer: true, Status: 402, Body: `{"error": "declined"}`,
	}
	release := action{
		Verb: "release", Title: "It did not happen", When: "The other side does not know of it, and the process that ran it has ended.",
		After:  "The next request with this key runs the operation.",
		Danger: "I have checked that it did not happen and will not. If it did, it happens twice.",
	}
	redrive := action{
		Verb: "redrive", Title: "Ask the resolvers again", When: "You know nothing, but the other side answers again.",
		After: "409 as before, until a resolver knows the outcome.",
	}
	switch {
	case !r.Readable():
		return nil
	case r.UnderReview():
		resolve.Title, resolve.After = "It happened: close the review", "The stored answer as before. The note says that it happened."
		release.Title, release.After = "It did not happen: close the review", "The stored answer as before."
		return []action{resolve, release}
	case r.State == retrysafe.StateUnknown && r.Inquiry.Disputed:
		return []action{resolve}
	case r.State == retrysafe.StateUnknown && !p.lookedInto(r.Operation):
		return []action{resolve, decline, release}
	case r.State == retrysafe.StateUnknown:
		return []action{resolve, decline, release, redrive}
	case r.State == retrysafe.StateInProgress && r.Due(), r.State == retrysafe.StateAccepted && r.Due():
		return []action{resolve, decline, release}
	case r.State == retrysafe.StateRetryable:
		resolve.Title, resolve.When = "It happened after all", "You have found its effect. The record becomes disputed: look for two effects."
		resolve.After = "409, until you resolve it a second time."
		return []action{resolve}
	case r.State == retrysafe.StateCompleted:
		return []action{
			{
				Verb: "forget", Title: "Forget the answer", When: "The stored answer is wrong, and the operation had no effect or a second one is wanted.",
				After: "The next request with this key is a new operation, and runs.", Danger: "I know that the next request runs the operation anew.",
			},
			{
				Verb: "erase", Title: "Erase the content", When: "Its content must be deleted before it expires. The key stays used.",
				After: "That it was executed and that its answer was not kept. Nothing runs.", Danger: "I know that the answer cannot be brought back.",
			},
		}
	default:
		return nil
	}
}

// verbs are those of a key's page.
var verbs = []string{"resolve", "decline", "release", "redrive", "forget", "erase"}

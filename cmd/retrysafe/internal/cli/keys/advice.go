package keys

import (
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/keyref"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// stateText returns the state of a record for lists.
func stateText(r *retrysafe.Record) string {
	switch {
	case !readable(r):
		return "unreadable"
	case r.UnderReview() && r.Inquiry.Disputed:
		return "unknown, answered, disputed"
	case r.UnderReview():
		return "unknown, answered"
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

// readable reports whether this program understands the record.
func readable(r *retrysafe.Record) bool {
	return r.Version != 0 && r.Version <= retrysafe.RecordVersion && r.State.Valid()
}

// advice is what the state of a record means, and what an operator may do.
type advice struct {
	meaning string
	options []terminal.Option
}

// happenedAnswer are the flags for the answer to an operation that has happened. Its body
// is a place to fill in, which is refused as it is.
const happenedAnswer = ` --status 201 --header 'Content-Type: application/json' --body '{"id":"..."}'`

// advise explains a record. Repeat are the flags that name the store.
func advise(r *retrysafe.Record, repeat string) advice {
	seen := fmt.Sprintf("%s %s --revision %d", repeat, keyref.ShellWords(r.Ref), r.Revision)
	settle := []terminal.Option{
		{When: "it happened, and you have the answer that the client would have got", Command: "retrysafe keys resolve" + seen + happenedAnswer + " --why '...'"},
		{When: "it was refused for good", Command: "retrysafe keys decline" + seen + ` --status 402 --header 'Content-Type: application/json' --body '{"error":"declined"}' --why '...'`},
		{When: "it did not happen and never will: the other side does not know of it, and the process that ran it has ended", Command: "retrysafe keys release" + seen + " --why '...'"},
	}
	sweep := terminal.Option{When: "no sweeper runs: one pass of the background duties by hand", Command: "retrysafe reconcile run" + repeat}
	switch {
	case !readable(r):
		return advice{meaning: "It cannot be read: it is damaged, newer than this program, or sealed with a key that is missing. Requests with it are refused (503) until it can be. Upgrade the program, or give it the key; nothing else touches it."}
	case r.State == retrysafe.StateAccepted && !r.Due():
		return advice{meaning: fmt.Sprintf("It is stored and waits for a worker, for another %s at most. Retries get 202. Check that a worker runs.", left(r))}
	case r.State == retrysafe.StateAccepted:
		return advice{meaning: "No worker claimed it in time. A sweeper answers it with a 408. Check that workers and a sweeper run.", options: []terminal.Option{sweep}}
	case r.State == retrysafe.StateInProgress && !r.Due():
		return advice{meaning: fmt.Sprintf("It is running: attempt %d holds a lease for another %s and renews it. Retries get 409. Either it ends or its lease does; there is nothing to do.", r.Attempt, left(r))}
	case r.State == retrysafe.StateInProgress:
		return advice{
			meaning: fmt.Sprintf("The lease of attempt %d has ended, and no sweeper has settled it yet. A sweeper, or the next retry, settles it by its policy: %s. If you know how it ended, say so.", r.Attempt, lapseText(r)),
			options: append([]terminal.Option{sweep}, settle...),
		}
	case r.UnderReview():
		return reviewAdvice(r, settle, seen)
	case r.State == retrysafe.StateUnknown && r.Inquiry.Disputed:
		return advice{
			meaning: "Two pieces of evidence contradict each other: it was taken not to have happened, and has. Perhaps it has happened twice. Retries get 409. Look for two effects at the other side, undo one there, and then resolve it.",
			options: settle[:1],
		}
	case r.State == retrysafe.StateUnknown && r.Inquiry.Dead:
		return advice{
			meaning: "It may have happened, and no resolver is asked again: a person has to look. Retries get 409 and do not run it, for as long as it takes. If you know nothing for certain, do nothing: unknown is safe.",
			options: append(settle, terminal.Option{When: "you know nothing, but the other side answers again", Command: "retrysafe keys redrive" + seen + " --why '...'"}),
		}
	case r.State == retrysafe.StateUnknown:
		return advice{
			meaning: fmt.Sprintf("It may have happened. Retries get 409 and do not run it. Resolvers, if any run, are asked about it %s; %s", terminal.Soon(r.Deadline, r.ReadAt), askedText(r.Inquiry.Tries)),
			options: settle,
		}
	case r.State == retrysafe.StateRetryable:
		return advice{
			meaning: "It is proven not to have happened. The next request with this key runs it; there is nothing to do.",
			options: []terminal.Option{{When: "it has happened after all (the record becomes disputed: look for two effects)", Command: settle[0].Command}},
		}
	case r.State == retrysafe.StateExpired:
		return advice{meaning: fmt.Sprintf("Its answer is forgotten; the key is kept for audit and is deleted %s.", terminal.Soon(r.Deadline, r.ReadAt))}
	default: // completed
		meaning := fmt.Sprintf("It is answered: every retry gets this %d. It is forgotten %s.", status(r), terminal.Soon(r.Deadline, r.ReadAt))
		if r.Result != nil && r.Result.Omitted {
			meaning = fmt.Sprintf("It was executed, with status %d; the answer was not kept, and retries are told so. It is forgotten %s.", r.Result.Status, terminal.Soon(r.Deadline, r.ReadAt))
		}
		return advice{meaning: meaning, options: []terminal.Option{
			{When: "the stored answer is wrong, it had no effect (or two are wanted), and the next request is to run anew", Command: "retrysafe keys forget" + seen + " --why '...'"},
			{When: "its content must be deleted before it expires; the key stays used", Command: "retrysafe keys erase" + seen + " --why '...'"},
		}}
	}
}

// reviewAdvice explains a record that has an answer although its outcome is unknown.
func reviewAdvice(r *retrysafe.Record, settle []terminal.Option, seen string) advice {
	meaning := fmt.Sprintf("Its attempt stopped without an answer. Retries get a stored %d, which never changes, and whether it happened is under review. ", status(r))
	if r.Inquiry.Disputed {
		meaning += "Evidence says that it has happened, against that answer: tell the client, or undo it at the other side, and then close the review."
	} else {
		meaning += fmt.Sprintf("Resolvers, if any run, are asked about it %s; %s", terminal.Soon(r.Deadline, r.ReadAt), askedText(r.Inquiry.Tries))
	}
	return advice{meaning: meaning, options: []terminal.Option{
		{When: "it happened: this closes the review, and the note says so; retries go on getting the stored answer", Command: settle[0].Command},
		{When: "it did not happen and never will: this closes the review", Command: "retrysafe keys release" + seen + " --why '...'"},
	}}
}

// left returns the time until the deadline of a record.
func left(r *retrysafe.Record) string { return terminal.Duration(r.Deadline.Sub(r.ReadAt)) }

// askedText returns how often resolvers were asked.
func askedText(tries int) string {
	if tries == 0 {
		return "none was asked so far."
	}
	return fmt.Sprintf("they were asked %s so far and could not say.", terminal.Count(tries, "time", "times"))
}

func status(r *retrysafe.Record) int {
	if r.Result == nil {
		return 0
	}
	return r.Result.Status
}

// lapseText returns what a lapsed attempt becomes.
func lapseText(r *retrysafe.Record) string {
	next, ok := retrysafe.DecideLapse(*r)
	if !ok {
		return "nothing"
	}
	switch {
	case next.UnderReview():
		return fmt.Sprintf("retries get a %d, and whether it happened is under review", status(&next.Record))
	case next.State == retrysafe.StateRetryable:
		return "retryable, so that the next request runs it"
	case next.State == retrysafe.StateAccepted:
		return "accepted again, for a worker"
	default:
		return "unknown, because it may have happened"
	}
}

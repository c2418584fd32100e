package action

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/operator"
)

// A Target is what was acted on.
type Target struct {
	// Name is printable.
	Name string
	// ID is that of the action.
	ID string
	// Show is the command that shows the target.
	Show string
}

// Report reports how an action ended: what package operator returned for it.
func Report(env *command.Env, flags *Flags, on Target, e operator.Entry, err error) error {
	refused, isRefused := errors.AsType[*operator.RefusedError](err)
	if e, ok := errors.AsType[*exit.Error](err); ok {
		return e
	}
	switch {
	case isRefused:
		e = refused.Entry
	case errors.Is(err, operator.ErrInvalid):
		return exit.Usagef("%v", err)
	case errors.Is(err, retrysafe.ErrMismatch):
		return exit.Usagef("%v", err).Hintf("leave out --id for a new action")
	case errors.Is(err, retrysafe.ErrUnavailable):
		return exit.Errorf(exit.Store, "the store does not answer, and nothing was done: %v", err)
	case err != nil:
		return exit.Errorf(exit.Unsure, "it is not known whether it was done: %v", err).
			Hintf("find out with the same command and:%s --revision %d --id %s", flags.AuthorWords(), flags.Revision, terminal.ShellWord(on.ID))
	}
	if flags.Format.Is("json") {
		if err := terminal.WriteJSON(env.Out, EntryJSON{e, e.Replayed}); err != nil {
			return err
		}
	} else if !isRefused {
		fmt.Fprintln(env.Out, summary(on.Name, &e))
	}
	if isRefused {
		return exit.Errorf(exit.No, "refused: %v", errors.New(e.Text)).Hintf("%s", afterRefusal(e.Code, on.Show))
	}
	return nil
}

// AuthorWords are the words of a command line that name the same author.
func (f *Flags) AuthorWords() string {
	if f.ByToken {
		return ""
	}
	return " --by " + terminal.ShellWord(f.By)
}

// EntryJSON is an entry of the audit for scripts. Replayed says that an earlier command
// did it.
type EntryJSON struct {
	operator.Entry
	Replayed bool
}

// MarshalJSON adds to what the audit stores.
func (e EntryJSON) MarshalJSON() ([]byte, error) {
	b, err := e.Entry.MarshalJSON()
	if err != nil || !e.Replayed {
		return b, err
	}
	return append(b[:len(b)-1], `,"replayed":true}`...), nil
}

// done is what each verb has done to its target.
var done = map[string]string{
	"resolve": "resolved", "decline": "declined", "release": "released", "forget": "forgotten", "erase": "erased",
	"redrive": "to be asked about again", "redrive letter": "sent again", "drop letter": "dropped", "skip message": "buried as a dead letter",
	"quarantine": "quarantined",
}

// Done returns what a verb has done to its targets.
func Done(verb string) string { return cmp.Or(done[verb], printable.Text(verb)) }

// summary returns what was done.
func summary(target string, e *operator.Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", target, Done(e.Verb))
	if e.To.State.Valid() {
		fmt.Fprintf(&b, "; it is %s now", e.To)
	}
	if e.Status != 0 && (e.Verb == "resolve" || e.Verb == "decline") {
		fmt.Fprintf(&b, ", and every retry gets its %d", e.Status)
	}
	if e.Outcome == operator.StatusGone {
		fmt.Fprintf(&b, "; there is nothing left to act on: %s", printable.Text(e.Text))
	}
	if e.Replayed {
		fmt.Fprintf(&b, " (this was done before, by this same action, at %s)", terminal.Exact(e.At))
	}
	fmt.Fprintf(&b, "\naction %s by %s", printable.Text(e.ID), printable.Text(e.By))
	return b.String()
}

// afterRefusal returns what to do about a refusal. Show is the command that shows the
// target.
func afterRefusal(code, show string) string {
	switch code {
	case "stale":
		return "look again, it may have been done already: " + show
	case "live":
		return "wait for the end of its lease"
	case "state":
		return "see what may be done: " + show
	case "window":
		return "if it has not happened, --force sends it again"
	case "unreadable":
		return "upgrade this program, or name the key with --keys-file"
	case "contradiction":
		return "it is unknown now, and nothing runs it: look for two effects at the other side, then resolve it"
	default: // not found
		return "check its name"
	}
}

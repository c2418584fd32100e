package outbox

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/fields"
)

// An Action is one click: who does what to which letter, as they saw it, and why.
type Action struct {
	// ID is the key of this click: the page draws it once, and sends it with every
	// repetition. Without one it is drawn here, and [Entry.ID] has it.
	ID string
	// By is who does it, and Why the reason, for whoever reads the audit. Required.
	By, Why string
	// Letter is the ID of the letter, and Revision its revision as the person saw
	// it. Required.
	Letter, Revision int64
	// Force redrives a letter although its receiver may have forgotten its key.
	Force bool
}

// Why an action is not done. But for ErrAction each comes in a [*RefusedError].
var (
	// ErrAction: the action lacks something. It is not in the audit, and nothing
	// was looked at.
	ErrAction = errors.New("outbox: the action is not complete")
	// ErrWindow: the receiver may have forgotten the letter's key.
	ErrWindow = errors.New("outbox: the receiver may have forgotten the letter's key, and take it for a new effect; find out whether it happened")
)

// Bounds of what a person may write, as package operator has them.
const (
	maxID  = 64
	maxBy  = 100
	maxWhy = 300
)

// check fills in the ID and reports what is missing.
func (a *Action) check() error {
	if a.ID == "" {
		a.ID = rand.Text()
	}
	bare := func(r rune) bool { return r <= ' ' || r > '~' }
	text := func(s string, most int) bool {
		return strings.TrimSpace(s) != "" && len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
	}
	switch {
	case len(a.ID) > maxID || strings.ContainsFunc(a.ID, bare):
		return fmt.Errorf("%w: ID is over %d characters, or not of letters, digits and signs", ErrAction, maxID)
	case !text(a.By, maxBy):
		return fmt.Errorf("%w: By says who it is, in up to %d bytes", ErrAction, maxBy)
	case !text(a.Why, maxWhy):
		return fmt.Errorf("%w: Why says why, in up to %d bytes", ErrAction, maxWhy)
	case a.Letter <= 0 || a.Revision <= 0:
		return fmt.Errorf("%w: Letter and Revision are those of the letter as it was shown", ErrAction)
	}
	return nil
}

// mark is by what an action recognises its own work.
func (a *Action) mark() string { return " [action " + a.ID + "]" }

// fingerprint is over all that the action says.
func (a *Action) fingerprint(verb string) retrysafe.Fingerprint {
	var b []byte
	for _, p := range [...]string{verb, a.By, a.Why, strconv.FormatInt(a.Letter, 10), strconv.FormatInt(a.Revision, 10), strconv.FormatBool(a.Force)} {
		b = fields.Append(b, p)
	}
	return retrysafe.Fingerprint{Alg: 1, Sum: sha256.Sum256(b)}
}

// An Outcome is how an action ended.
type Outcome string

const (
	// Done: the letter was disposed of.
	Done Outcome = "done"
	// Gone: there is no such letter any more, and an earlier try of this action
	// may have done that, or somebody else.
	Gone Outcome = "gone"
	// Refused: it was not done; the entry says why.
	Refused Outcome = "refused"
	// Open: nobody knows yet. Whoever repeats the action under its ID finds out.
	Open Outcome = "open"
)

// An Entry is what the audit says of one action. It is stored as package operator
// stores its own, and read by its desk.
type Entry struct {
	ID string `json:"id"`
	// At is when it was first asked for, by the store's clock.
	At   time.Time `json:"at"`
	By   string    `json:"by"`
	Verb string    `json:"verb"`
	Why  string    `json:"why"`
	// Ref names the letter: its ID, in a scope of the outbox's own.
	Ref struct {
		Scope string `json:"scope"`
		Key   string `json:"key"`
	} `json:"ref"`
	// Seen is the revision that the person saw.
	Seen    int64   `json:"seen"`
	Force   bool    `json:"force,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Code and Text say why it was refused.
	Code string `json:"code,omitempty"`
	Text string `json:"text,omitempty"`
	// Attempt is how often it was begun.
	Attempt int `json:"attempt,omitempty"`
	// Replayed says that this is the outcome of an earlier click.
	Replayed bool `json:"-"`
}

// A RefusedError says that an action was not done, and why. It is in the audit, and
// every repetition of the action gets it. It wraps [retrysafe.ErrConflict],
// [retrysafe.ErrNotFound], [ErrUnreadable] or [ErrWindow].
type RefusedError struct {
	// Entry is what the audit says.
	Entry Entry
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s %s: %s", e.Entry.Verb, e.Entry.Ref.Key, e.Entry.Text)
}

// Unwrap returns the reason, so that errors.Is finds it.
func (e *RefusedError) Unwrap() error { return codes[e.Entry.Code] }

// codes are the reasons as the audit spells them.
var codes = map[string]error{
	"stale":      retrysafe.ErrConflict,
	"not_found":  retrysafe.ErrNotFound,
	"unreadable": ErrUnreadable,
	"window":     ErrWindow,
}

// codeOf returns how the audit spells a reason, and "" for an error that is none:
// then nobody can say whether the action was done.
func codeOf(err error) string {
	for code, reason := range codes {
		if errors.Is(err, reason) {
			return code
		}
	}
	return ""
}

var (
	auditScope  = retrysafe.SystemScope("operator")
	letterScope = retrysafe.SystemScope("outbox")
)

// act does one verb to one letter, under the action's ID. The entry is its answer.
func (l *Letters) act(ctx context.Context, verb string, a Action, do func(context.Context, *Action) error) (Entry, error) {
	if err := a.check(); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", verb, err)
	}
	e := Entry{ID: a.ID, By: a.By, Verb: verb, Why: a.Why, Seen: a.Revision, Force: a.Force, Outcome: Open}
	e.Ref.Scope, e.Ref.Key = letterScope, strconv.FormatInt(a.Letter, 10)
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: auditScope, Key: a.ID}, Operation: "operator " + verb, Fingerprint: a.fingerprint(verb)}
	out, err := l.engine.Do(ctx, call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		e := e // an entry counts when it is stored
		e.At, e.Attempt = x.Record().CreatedAt, x.Attempt()
		if x.Checkpoint().IsZero() { // who, what and why are known before anything is done
			data, err := json.Marshal(e)
			if err != nil {
				return retrysafe.Result{}, err
			}
			if err := x.Save(ctx, retrysafe.Checkpoint{Phase: verb, Data: data}); err != nil {
				return retrysafe.Result{}, err
			}
		}
		if err := l.apply(ctx, &a, &e, do); err != nil {
			return retrysafe.Result{}, err
		}
		body, err := json.Marshal(e)
		return retrysafe.Result{Status: 200, Body: body}, err
	})
	switch {
	case errors.Is(err, retrysafe.ErrMismatch):
		return e, fmt.Errorf("%s: the ID %q is that of another action: %w", verb, a.ID, err)
	case err != nil:
		return e, fmt.Errorf("%s: repeat it under the ID %q to find out how it ended: %w", verb, a.ID, err)
	}
	e = Entry{}
	if err := json.Unmarshal(out.Body, &e); err != nil {
		return e, fmt.Errorf("%s: read the entry: %w", verb, err)
	}
	if e.Replayed = out.Replayed; e.Outcome == Refused {
		return e, &RefusedError{e}
	}
	return e, nil
}

// applies is how often a step is taken when the store cannot say whether it was.
const applies = 3

// apply does it, and notes in the entry how it ended.
func (l *Letters) apply(ctx context.Context, a *Action, e *Entry, do func(context.Context, *Action) error) (err error) {
	doubt := e.Attempt > 1 // an earlier try may have done it
	for range applies {
		step, cancel := context.WithTimeout(ctx, l.timeout)
		err = do(step, a)
		cancel()
		code := codeOf(err)
		switch {
		case err == nil:
			e.Outcome = Done
			return nil
		case doubt && errors.Is(err, retrysafe.ErrNotFound):
			e.Outcome, e.Text = Gone, "an earlier try of this action did it, or somebody else has"
			return nil
		case code != "":
			e.Outcome, e.Code, e.Text = Refused, code, err.Error()
			return nil
		}
		doubt = true
	}
	return err
}

package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// Resolve states that an operation whose outcome is unknown has happened, and which
// answer retries get from now on. It also settles a dead letter, and an attempt whose
// lease has lapsed, which is just as unknown.
//
// If the record says that the operation did not happen, because it was released
// earlier, the record becomes an unknown dead letter: the operation may have happened
// twice. The error wraps [retrysafe.ErrContradiction]; find out, and resolve it again.
func (d *Service) Resolve(ctx context.Context, a Action, answer retrysafe.Result) (Entry, error) {
	return d.answer(ctx, verbResolve, retrysafe.FindingHappened, a, answer)
}

const (
	verbResolve = "resolve"
	verbDecline = "decline"
	verbRelease = "release"
	verbRedrive = "redrive"
	verbForget  = "forget"
	verbErase   = "erase"
)

// Decline states that an operation whose outcome is unknown was refused for good, and
// which answer retries get from now on. Otherwise it works like Resolve.
func (d *Service) Decline(ctx context.Context, a Action, answer retrysafe.Result) (Entry, error) {
	return d.answer(ctx, verbDecline, retrysafe.FindingDeclined, a, answer)
}

func (d *Service) answer(ctx context.Context, verb string, f retrysafe.Finding, a Action, answer retrysafe.Result) (Entry, error) {
	if err := checkAnswer(&answer, a.Bodiless); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", verb, err)
	}
	return d.act(ctx, verb, a, storekit.AppendResult(nil, &answer), answering(f, answer))
}

// checkAnswer reports an answer that retries cannot get, and one that was copied from an
// example: retries would get it for the whole retention.
func checkAnswer(answer *retrysafe.Result, noBody bool) error {
	if answer.Status < 200 || answer.Status > 599 {
		return fmt.Errorf("%w: the answer for retries must have a status between 200 and 599", ErrInvalid)
	}
	if LacksBody(answer) && !noBody {
		return fmt.Errorf("%w: the answer has no body, and clients' programs read that of a %d; if your API answers without one, say so by Bodiless", ErrInvalid, answer.Status)
	}
	if bytes.Equal(bytes.ReplaceAll(answer.Body, []byte(" "), nil), []byte(`{"id":"..."}`)) {
		return fmt.Errorf("%w: the body of the answer is that of an example; write what the client would have got", ErrInvalid)
	}
	if err := checkJSON(answer); err != nil {
		return fmt.Errorf("%w: by its Content-Type the body of the answer is JSON, and it is not: %w; retries would get it as it is, and it cannot be changed later", ErrInvalid, err)
	}
	return nil
}

// LacksBody reports whether an answer has no body although its status is that of a success
// which has one: clients' programs read it, and it cannot be given later. So Resolve and
// Decline refuse it, unless [Action.Bodiless] says that there is none.
func LacksBody(answer *retrysafe.Result) bool {
	empty := answer.Status == http.StatusNoContent || answer.Status == http.StatusResetContent
	return len(answer.Body) == 0 && answer.Status >= 200 && answer.Status < 300 && !empty
}

// checkJSON reports a body that is called JSON and is not: the clients' programs read it.
// An encoded body is not looked into.
func checkJSON(answer *retrysafe.Result) error {
	called, encoded := false, false
	for name, values := range answer.Header {
		switch strings.ToLower(name) {
		case "content-type":
			kind, _, _ := mime.ParseMediaType(strings.Join(values, ", "))
			called = kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
		case "content-encoding":
			encoded = true
		}
	}
	if !called || encoded || len(answer.Body) == 0 {
		return nil
	}
	var body json.RawMessage
	return json.Unmarshal(answer.Body, &body)
}

// answering returns the change that gives an unknown outcome its answer.
func answering(f retrysafe.Finding, answer retrysafe.Result) change {
	return func(a *Action, r retrysafe.Record) (retrysafe.Write, error) {
		return concluded(a, r, retrysafe.Evidence{Finding: f, Result: answer, ProviderRef: a.ProviderRef})
	}
}

// Release states that an operation whose outcome is unknown has not happened and will
// not: the next request under its key runs it, from its last checkpoint. The operator
// vouches for two facts: the other side does not know of the operation, and the process
// that ran it has ended. A request that is still on its way is found by no look-up. If
// the effects are unprotected, nothing else prevents a second effect.
//
// An attempt whose lease has lapsed can be released too. An attempt in flight cannot:
// it may happen at any moment.
func (d *Service) Release(ctx context.Context, a Action) (Entry, error) {
	return d.act(ctx, verbRelease, a, nil, releasing)
}

func releasing(a *Action, r retrysafe.Record) (retrysafe.Write, error) {
	return concluded(a, r, retrysafe.Evidence{Finding: retrysafe.FindingNotHappened})
}

// concluded returns the write that the operator's evidence makes of an unknown outcome.
func concluded(a *Action, r retrysafe.Record, v retrysafe.Evidence) (retrysafe.Write, error) {
	if r.State == retrysafe.StateInProgress || r.State == retrysafe.StateAccepted {
		if !r.Due() {
			return retrysafe.Write{}, live(&r)
		}
		// The lease has lapsed, and a sweeper would settle the record by its policy
		// now. The operator's evidence settles it directly. The swap fences the old
		// owner.
		r.State = retrysafe.StateUnknown
		r.AddNote(retrysafe.Note{By: a.author(), Text: "lease lapsed"})
	}
	v.Proof, v.Text, v.By, v.ID = retrysafe.ProofAttested, a.Why, a.author(), a.ID
	next, err := retrysafe.DecideEvidence(r, v, retrysafe.Recheck{})
	if errors.Is(err, retrysafe.ErrNotUnknown) {
		return retrysafe.Write{}, fmt.Errorf("%w: the record is %s, and its outcome is known", ErrState, r.State)
	}
	return next, err
}

// contradicted reports whether n, the action's own note, belongs to a Resolve that
// contradicted the record, and so left it unknown.
func (a *Action) contradicted(n *retrysafe.Note) bool {
	return a.verb == verbResolve && n.State == retrysafe.StateUnknown
}

func live(r *retrysafe.Record) error {
	if r.State == retrysafe.StateAccepted {
		return fmt.Errorf("%w: the record waits for a worker until %s", ErrLive, r.Deadline.Format(time.RFC3339))
	}
	return fmt.Errorf("%w: attempt %d has a lease until %s", ErrLive, r.Attempt, r.Deadline.Format(time.RFC3339))
}

// Forget frees a key whose operation is over: under every policy, the next request with
// this key is a new operation, even if it is a different request. It is for a stored
// answer that is wrong or unwanted, such as an error that was kept.
//
// The new operation has effects of its own. Only where effects are keyed does the other
// side recognise the repetition, for as long as it remembers the key, and answer as
// before.
//
// A record in flight or unknown is refused: settle it first. With [Options.Receipts] the
// receipts of messages that settled the key are deleted too.
func (d *Service) Forget(ctx context.Context, a Action) (Entry, error) {
	return d.act(ctx, verbForget, a, nil, func(a *Action, r retrysafe.Record) (retrysafe.Write, error) {
		if err := settled(&r); err != nil {
			return retrysafe.Write{}, err
		}
		// A retryable record that is due is free under every policy for expired keys.
		w := r.Update()
		w.State, w.Result, w.Term, w.Reason = retrysafe.StateRetryable, nil, 0, "forgotten"
		a.note(&w, "forgotten")
		return w, nil
	})
}

// settled returns an error if the operation of the record is not over.
func settled(r *retrysafe.Record) error {
	switch r.State {
	case retrysafe.StateInProgress, retrysafe.StateAccepted:
		return live(r)
	case retrysafe.StateUnknown:
		return fmt.Errorf("%w: the outcome is unknown; resolve, decline or release it first", ErrState)
	default:
		return nil
	}
}

// Redrive makes an unknown outcome due for the resolvers at once, with its tries reset.
// It also revives a dead letter.
func (d *Service) Redrive(ctx context.Context, a Action) (Entry, error) {
	return d.act(ctx, verbRedrive, a, nil, redriving)
}

func redriving(a *Action, r retrysafe.Record) (retrysafe.Write, error) {
	if r.State != retrysafe.StateUnknown {
		return retrysafe.Write{}, fmt.Errorf("%w: it is %s, and no resolver is asked about it", ErrState, r.State)
	}
	w := r.Update()
	w.Inquiry.Tries, w.Inquiry.Dead, w.Term = 0, false, 0
	a.note(&w, "to be asked about again")
	return w, nil
}

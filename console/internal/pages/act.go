package pages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/console/internal/access"
	"github.com/retrysafe/retrysafe/operator"
)

// actionFrom returns the action that a form describes. Its author is the person of the
// request, whatever the form says.
func actionFrom(r *http.Request) (operator.Action, error) {
	revision, err := strconv.ParseInt(r.PostFormValue("revision"), 10, 64)
	if err != nil {
		return operator.Action{}, fmt.Errorf("%w: the form has no revision; load the page again", operator.ErrInvalid)
	}
	id := r.PostFormValue("id")
	if id == "" {
		return operator.Action{}, fmt.Errorf("%w: the form has no ID; load the page again", operator.ErrInvalid)
	}
	return operator.Action{
		ID: id, By: access.From(r.Context()).Name, Why: strings.TrimSpace(r.PostFormValue("why")), Ref: refOf(r), Revision: revision,
		ProviderRef: strings.TrimSpace(r.PostFormValue("provider_ref")),
	}, nil
}

// answerFrom returns the answer that a form describes.
func answerFrom(r *http.Request) (retrysafe.Result, error) {
	status, err := strconv.Atoi(r.PostFormValue("answer_status"))
	if err != nil {
		return retrysafe.Result{}, fmt.Errorf("%w: the status of the answer is not a number", operator.ErrInvalid)
	}
	answer := retrysafe.Result{Status: status}
	if body := r.PostFormValue("answer_body"); body != "" {
		answer.Body = []byte(strings.ReplaceAll(body, "\r\n", "\n")) // browsers send line breaks of their own
		if kind := strings.TrimSpace(r.PostFormValue("answer_type")); kind != "" {
			if !clean(kind) {
				return retrysafe.Result{}, fmt.Errorf("%w: the content type has characters that no header may have", operator.ErrInvalid)
			}
			answer.Header = map[string][]string{"Content-Type": {kind}}
		}
	}
	if operator.LacksBody(&answer) {
		return retrysafe.Result{}, fmt.Errorf("%w: the answer has no body, and clients' programs read that of a %d; give it, or, if your API answers without one, use retrysafe keys resolve --no-body", operator.ErrInvalid, status)
	}
	return answer, nil
}

// errUnconfirmed says that a form for something that cannot be undone came without its
// confirmation.
var errUnconfirmed = errors.New("tick the box that says what this does, and send the form again")

// errRefused wraps what a page refuses and may show.
var errRefused = errors.New("nothing was done")

// act carries out one verb on one key.
func (p *Pages) act(w http.ResponseWriter, r *http.Request) {
	verb := r.PathValue("verb")
	if !slices.Contains(verbs, verb) {
		p.fail(w, r, http.StatusNotFound, "There is no such action.")
		return
	}
	a, err := actionFrom(r)
	if err == nil && slices.Contains([]string{"release", "forget", "erase"}, verb) && r.PostFormValue("confirm") != "yes" {
		err = fmt.Errorf("%w: %w", operator.ErrInvalid, errUnconfirmed)
	}
	if err == nil {
		_, err = p.carryOut(r.Context(), r, verb, a)
	}
	p.changed()
	if err != nil {
		p.refused(w, r, err)
		return
	}
	secure(w)
	http.Redirect(w, r, p.link("/key", url.Values{"scope": {a.Ref.Scope}, "key": {a.Ref.Key}, "done": {a.ID}}), http.StatusSeeOther)
}

// carryOut does the action. It ends also if the client goes away.
func (p *Pages) carryOut(ctx context.Context, r *http.Request, verb string, a operator.Action) (operator.Entry, error) {
	ctx = context.WithoutCancel(ctx)
	switch verb {
	case "resolve", "decline":
		answer, err := answerFrom(r)
		if err != nil {
			return operator.Entry{}, err
		}
		if verb == "resolve" {
			return p.Service.Resolve(ctx, a, answer)
		}
		return p.Service.Decline(ctx, a, answer)
	case "release":
		return p.Service.Release(ctx, a)
	case "redrive":
		return p.Service.Redrive(ctx, a)
	case "forget":
		return p.Service.Forget(ctx, a)
	default:
		return p.Service.Erase(ctx, a)
	}
}

// changed lets the next page count anew what needs a person.
func (p *Pages) changed() { p.groups.invalidate() }

// refused shows the key as it is now, and why the action was not carried out.
func (p *Pages) refused(w http.ResponseWriter, r *http.Request, err error) {
	status, n := p.refusal(r, err)
	p.showKey(w, r, status, n)
}

// refusal returns the status and the message for an action that was not carried out.
func (p *Pages) refusal(r *http.Request, err error) (int, *note) {
	text := visible(err.Error())
	var refused *operator.RefusedError
	if errors.As(err, &refused) {
		text = visible(refused.Entry.Text)
	}
	switch {
	case errors.Is(err, operator.ErrInvalid):
		return http.StatusUnprocessableEntity, &note{"bad", "Nothing was done: the form is not complete.", text}
	case errors.Is(err, operator.ErrStale):
		return http.StatusConflict, &note{"warn", "Nothing was done: the record has changed since you saw it.", text + ". Below is what it is now. The audit has both actions."}
	case errors.Is(err, retrysafe.ErrContradiction):
		return http.StatusConflict, &note{"bad", "The record is disputed now: it may have happened twice.", text}
	case errors.Is(err, errRefused), errors.Is(err, operator.ErrLive), errors.Is(err, operator.ErrState), errors.Is(err, operator.ErrWindow), errors.Is(err, retrysafe.ErrNotFound),
		errors.Is(err, retrysafe.ErrUnreadable), errors.Is(err, retrysafe.ErrMismatch):
		return http.StatusConflict, &note{"bad", "Nothing was done.", text}
	default:
		return http.StatusServiceUnavailable, &note{"bad", "It is not known whether it was done.", p.logged(r, err) + " Go back and send the same form again: its ID makes it happen once."}
	}
}

package api

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
)

func problem(status int, code, detail string) *adminwire.Problem {
	return &adminwire.Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

func writeProblem(w http.ResponseWriter, p *adminwire.Problem) {
	writeJSON(w, "application/problem+json", p.Status, p)
}

// Refuse answers a request that package access does not let through.
func Refuse(w http.ResponseWriter, _ *http.Request, status int, code, detail string) {
	writeProblem(w, problem(status, code, detail))
}

// A refusal is a problem as an error.
type refusal struct{ *adminwire.Problem }

func (r *refusal) Error() string { return r.Detail }

func invalid(format string, args ...any) error {
	return &refusal{problem(http.StatusBadRequest, adminwire.CodeInvalid, fmt.Sprintf(format, args...))}
}

// An actionError is the error of an action with this ID.
type actionError struct {
	id  string
	err error
}

func (e *actionError) Error() string { return e.err.Error() }
func (e *actionError) Unwrap() error { return e.err }

// problemOf returns the problem for an error. The text of an error of the store is logged,
// and not sent.
func (a *API) problemOf(c *call, err error) *adminwire.Problem {
	r := (*refusal)(nil)
	action := (*actionError)(nil)
	refused := (*operator.RefusedError)(nil)
	isAction := errors.As(err, &action)
	switch {
	case errors.As(err, &r):
		return r.Problem
	case errors.As(err, &refused):
		p := problem(http.StatusConflict, adminwire.CodeRefused, refused.Entry.Text)
		p.Entry, p.Replayed = &refused.Entry, refused.Entry.Replayed
		return p
	case errors.Is(err, operator.ErrInvalid):
		return problem(http.StatusBadRequest, adminwire.CodeInvalid, err.Error())
	case errors.Is(err, retrysafe.ErrMismatch):
		return problem(http.StatusConflict, adminwire.CodeMismatch, err.Error())
	case errors.Is(err, retrysafe.ErrNotFound):
		return problem(http.StatusNotFound, adminwire.CodeNotFound, "it was forgotten, or never existed")
	case errors.Is(err, operator.ErrStale):
		return problem(http.StatusConflict, adminwire.CodeRefused, err.Error())
	case errors.Is(err, retrysafe.ErrUnreadable):
		return problem(http.StatusConflict, adminwire.CodeUnreadable, "the record cannot be read: it is damaged, newer than this program, or sealed with a key that is missing")
	case errors.Is(err, errors.ErrUnsupported):
		return problem(http.StatusNotImplemented, adminwire.CodeUnsupported, "this store cannot do that")
	}
	a.Logger.Warn("console: a request to the API failed", "method", c.Method, "path", c.Pattern, "by", c.by.Name, "error", err)
	if isAction && errors.Is(err, retrysafe.ErrInFlight) {
		return problem(http.StatusInternalServerError, adminwire.CodeUnsure,
			fmt.Sprintf("an attempt under the id %q is at work, or its server was killed; send the same request again in half a minute", action.id))
	}
	if isAction && !errors.Is(err, retrysafe.ErrUnavailable) {
		return problem(http.StatusInternalServerError, adminwire.CodeUnsure,
			fmt.Sprintf("it is not known whether it was done; the same request with the id %q tells", action.id))
	}
	return problem(http.StatusServiceUnavailable, adminwire.CodeUnavailable, "the store does not answer; nothing was done")
}

package httpkey

import (
	"net/http"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Problem is a refusal of somebody who works with a guard, such as a proxy behind
// it: it is answered in the guard's own envelope.
type Problem struct {
	// Code is stable; it ends the problem's type, see [Options.ProblemBase].
	Code string
	// Status is that of the response.
	Status int
	// Title says what is wrong and Detail what to do, both without a word of
	// anything internal.
	Title, Detail string
	// Retryable: the same request with the same key may get another answer, after
	// RetryAfter, at least a second.
	Retryable  bool
	RetryAfter time.Duration
	// SafeNewKey: the request has certainly not run under this key.
	SafeNewKey bool
}

// Refuse answers with a problem, counts and reports it. Key is the client's key if
// it is known. A handler that refuses a request has to settle its execution first:
// otherwise the status decides, as for any answer of a handler.
func (g *Guard) Refuse(w http.ResponseWriter, r *http.Request, key string, p *Problem) {
	g.refuse(w, r, key, p.refusal())
}

func (p *Problem) refusal() refusal {
	kind := apiError
	if p.Status == http.StatusTooManyRequests {
		kind = stripeError{"invalid_request_error", "rate_limit"}
	}
	return refusal{
		problem:    &problem{p.Code, p.Status, p.Title, p.Detail, p.Retryable, p.SafeNewKey, kind},
		retryAfter: p.RetryAfter,
	}
}

// busyError is a problem that [Options.Busy] has returned, on its way to a client.
type busyError struct{ *Problem }

func (e *busyError) Error() string { return e.Title }

// A Fate is what became of a request at a guard.
type Fate struct {
	// Ref is whose request it was, as far as that was understood.
	Ref retrysafe.Ref
	// Code is [FateRan], [FateReplay], or the code of the problem that the request
	// was refused with, in-flight for one that was accepted. It is empty for a
	// request that passed without a key.
	Code string
	// Enforced is false in observe mode: the request went on.
	Enforced bool
}

// Codes of a [Fate] that are no problems.
const (
	FateRan    = "ran"
	FateReplay = "replay"
)

// tell tells of a request's fate.
func (g *Guard) tell(r *http.Request, ref retrysafe.Ref, code string) {
	if g.o.Fate != nil {
		g.o.Fate(r, Fate{Ref: ref, Code: code, Enforced: !g.o.Observe})
	}
}

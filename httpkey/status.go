package httpkey

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/keysyntax"
)

// statusTimeout bounds how long a status request waits for the store.
const statusTimeout = 1500 * time.Millisecond

// Status returns the resource that reports the state of a request, for GET and HEAD:
// the target of [Options.StatusURL]. It belongs behind the same authentication as the
// route, because the same scope function says whose request it is. Operation is that of
// the route; requests of other operations are not found there. The key is the path's
// wildcard {key}, or comes in the key's header.
//
// It answers 202 while the request waits or runs, then with the stored answer itself,
// marked as a replay. It runs nothing and writes nothing.
func (g *Guard) Status(operation string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header()["Allow"] = []string{"GET, HEAD"}
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		ref, re := g.statusRef(r, operation)
		if re != nil {
			g.refuse(w, r, ref.Key, *re)
			return
		}
		g.status(w, r, ref, operation)
	})
}

// statusRef returns the key that a status request asks about.
func (g *Guard) statusRef(r *http.Request, operation string) (ref retrysafe.Ref, re *refusal) {
	var err error
	lines := r.Header[g.o.Header]
	switch ref.Key = r.PathValue("key"); {
	case ref.Key != "":
	case len(lines) == 0:
		return ref, &refusal{problem: keyMissing}
	case len(lines) > 1:
		return ref, &refusal{problem: keyMalformed, found: "There is more than one header line."}
	default:
		if ref.Key, err = keysyntax.Parse(lines[0], g.o.Profile.Opaque, g.o.Strict); err != nil {
			return ref, &refusal{problem: keyMalformed, found: "The key was not accepted: " + err.Error() + "."}
		}
	}
	if ref.Scope, err = g.scopeOf(r, operation); err != nil {
		g.o.Logger.Warn("retrysafe: caller is not identified", "operation", operation, "error", err)
		return ref, unidentified(err)
	}
	tenant, _, _ := strings.Cut(ref.Scope, scopePart)
	if wait, ok := g.limits.lookups.take(tenant); !ok {
		return ref, &refusal{problem: tooManyLookups, retryAfter: wait}
	}
	return ref, nil
}

// status sends the state of a request.
func (g *Guard) status(w http.ResponseWriter, r *http.Request, ref retrysafe.Ref, operation string) {
	ctx, cancel := context.WithTimeout(r.Context(), statusTimeout)
	defer cancel()
	rec, err := g.engine.Store().Load(ctx, ref)
	refuse := func(p *problem, after time.Duration) {
		g.refuse(w, r, ref.Key, refusal{problem: p, retryAfter: after})
	}
	switch {
	case errors.Is(err, retrysafe.ErrNotFound), err == nil && rec.Operation != cutOperation(operation):
		refuse(keyUnknown, 0)
		return
	case err != nil: // the request may have been executed, so explain's text would be wrong
		refuse(recordUnreadable, time.Second)
		return
	case !rec.Readable():
		refuse(recordUnreadable, time.Minute)
		return
	}
	if swept, ok := retrysafe.DecideLapse(rec); ok && swept.State == retrysafe.StateUnknown {
		rec.State, rec.Result = retrysafe.StateUnknown, swept.Result // its lease has run out, and the record does not say so yet
	}
	if rec.UnderReview() {
		g.replay(w, r, &retrysafe.Outcome{Result: *rec.Result, Replayed: true, Attempt: rec.Attempt})
		return
	}
	switch rec.State {
	case retrysafe.StateAccepted, retrysafe.StateInProgress:
		g.write(w, refusal{problem: stillRunning, retryAfter: time.Second})
	case retrysafe.StateUnknown:
		refuse(outcomeUnknown, min(max(rec.Deadline.Sub(rec.ReadAt), time.Second), time.Minute))
	case retrysafe.StateCompleted:
		if rec.Due() {
			refuse(keyGone, 0)
			return
		}
		g.replay(w, r, &retrysafe.Outcome{Result: *rec.Result, Replayed: true, Attempt: rec.Attempt, Expires: rec.Deadline})
	case retrysafe.StateRetryable:
		if rec.Due() {
			refuse(keyGone, 0)
			return
		}
		refuse(attemptFailed, time.Second)
	default: // Expired
		refuse(keyGone, 0)
	}
}

package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

// An Exchange is one request that has ended, for the access log and for metrics.
type Exchange struct {
	Method string
	// Path is what the client asked for, without its query. It is the client's own
	// text: who logs it has to make it harmless.
	Path string
	// Route is the configured pattern, with its method, or [DefaultRoute]. It is
	// empty for a request that no route is about.
	Route   string
	Outcome Outcome
	// Code is that of the problem that the client was told of, if there was one, and
	// for an observed request what it would have been told.
	Code string
	// Status is that of the response, zero if there was none.
	Status int
	// Bytes is the size of the response's body; for a passed request it is what the
	// upstream announced, and -1 if it announced nothing.
	Bytes int64
	// Took is how long it took, Upstream how much of that the upstream had it.
	Took, Upstream time.Duration
	// KeyHash and ScopeHash identify the key and the tenant without telling them.
	// Both are empty where they were not found out.
	KeyHash, ScopeHash string
	// Attempt is the number of the attempt, if this was one.
	Attempt int
	// Later is true for an attempt of a worker. Its client does not wait for it.
	Later bool
	// Err is what went wrong at the upstream. It is for operators only.
	Err error
}

// Guarded reports whether the request was more than let through.
func (x *Exchange) Guarded() bool { return x.Outcome != Passed }

// DefaultRoute is the name of the route of guarded requests that no pattern matches.
const DefaultRoute = "default"

// An Outcome is what became of a request.
type Outcome string

const (
	// Passed: it went to the upstream, and no guard looked at it.
	Passed Outcome = "passed"
	// Observed: it went to the upstream, and a guard noted what it would have done.
	Observed Outcome = "observed"
	// Fresh: it was an attempt, whatever came of that.
	Fresh Outcome = "fresh"
	// Replayed: it got the stored answer.
	Replayed Outcome = "replay"
	// Accepted: it is run later, or being run.
	Accepted Outcome = "accepted"
	// Refused: it did not run.
	Refused Outcome = "refused"
)

// exchange is one guarded request under way. It is the request's context and the
// response's writer, so that whoever serves it finds it by either.
type exchange struct {
	context.Context
	http.ResponseWriter
	told  Exchange // what is known of it so far
	began time.Time
}

type exchangeKey struct{}

// Value finds the exchange itself.
func (x *exchange) Value(key any) any {
	if key == (exchangeKey{}) {
		return x
	}
	return x.Context.Value(key)
}

// exchangeOf returns the exchange that a request belongs to, or nil.
func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// WriteHeader notes the final status.
func (x *exchange) WriteHeader(status int) {
	if x.told.Status == 0 && status >= 200 {
		x.told.Status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write counts.
func (x *exchange) Write(p []byte) (int, error) {
	if x.told.Status == 0 {
		x.told.Status = http.StatusOK
	}
	n, err := x.ResponseWriter.Write(p)
	x.told.Bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// judged takes the guard's word for what became of the request.
func judged(r *http.Request, f httpkey.Fate) {
	x := exchangeOf(r.Context())
	if x == nil {
		return
	}
	x.named(f.Ref)
	if x.told.Code == "" && f.Code != httpkey.FateRan && f.Code != httpkey.FateReplay {
		x.told.Code = f.Code
	}
	switch {
	case !f.Enforced:
		x.told.Outcome = Observed
		if f.Code == httpkey.FateReplay {
			x.told.Code = f.Code
		}
	case f.Code == "" && x.told.Code == "":
		x.told.Outcome = Passed
	case f.Code == httpkey.FateReplay:
		x.told.Outcome = Replayed
	case x.told.Attempt > 0:
		x.told.Outcome = Fresh
	case x.told.Status == http.StatusAccepted:
		x.told.Outcome = Accepted
	default:
		x.told.Outcome = Refused
	}
}

// named notes whose request it is.
func (x *exchange) named(ref retrysafe.Ref) {
	if ref.Key == "" || x.told.KeyHash != "" {
		return
	}
	x.told.KeyHash = retrysafe.HashKey(ref.Key)
	tenant, _ := httpkey.Caller(ref)
	x.told.ScopeHash = retrysafe.HashKey(tenant)
}

package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/httpkey"
)

// An Exchange is one request that has ended, for the access log and for metrics.
type Exchange struct {
	Method string
	// Path is what the client asked for, without its query. It is the client's own text
	// and has to be escaped before it is logged.
	Path string
	// Route is the configured pattern, with its method, or [DefaultRoute]. It is
	// empty for a request that no route is about.
	Route    string
	Handling Handling
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
	// Context is the request's, for its values alone.
	Context context.Context
}

// Guarded reports whether the request was more than let through.
func (x *Exchange) Guarded() bool { return x.Handling != HandlingPassed }

// DefaultRoute is the name of the route of guarded requests that no pattern matches.
const DefaultRoute = "default"

// A Handling is what became of a request.
type Handling string

const (
	// HandlingPassed: it went to the upstream, and no guard looked at it.
	HandlingPassed Handling = "passed"
	// HandlingObserved: it went to the upstream, and a guard noted what it would have done.
	HandlingObserved Handling = "observed"
	// HandlingFresh: it was an attempt, whatever came of that.
	HandlingFresh Handling = "fresh"
	// HandlingReplayed: it got the stored answer.
	HandlingReplayed Handling = "replay"
	// HandlingAccepted: it is run later, or being run.
	HandlingAccepted Handling = "accepted"
	// HandlingEvent: it was an event of a webhook, and was taken in.
	HandlingEvent Handling = "event"
	// HandlingRefused: it did not run.
	HandlingRefused Handling = "refused"
)

// proxied is one guarded request under way. It is the request's context and the
// response's writer, so that the guard and the proxy find it by either.
type proxied struct {
	context.Context
	http.ResponseWriter
	route   *route
	request *http.Request // as the guard has it
	event   Exchange      // what is known of it so far
	began   time.Time

	tenant   string             // once it is known
	consumer admission.Consumer // once it is known; not changed after that
	claim    admission.Claim    // what it holds of the memory that all share
	body     arrivingBody
	answer   int64 // size of the answer up to which it is charged
	muted    bool  // the rest of the answer is dropped: another one was sent
}

type proxiedKey struct{}

// Value finds the exchange itself.
func (x *proxied) Value(key any) any {
	if key == (proxiedKey{}) {
		return x
	}
	return x.Context.Value(key)
}

// proxiedOf returns the exchange that a request belongs to, or nil.
func proxiedOf(ctx context.Context) *proxied {
	x, _ := ctx.Value(proxiedKey{}).(*proxied)
	return x
}

// WriteHeader notes the final status.
func (x *proxied) WriteHeader(status int) {
	if x.muted || x.refuseReplay() {
		return
	}
	if x.event.Status == 0 && status >= 200 {
		x.event.Status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write counts.
func (x *proxied) Write(p []byte) (int, error) {
	if x.muted {
		return len(p), nil
	}
	if x.event.Status == 0 {
		x.event.Status = http.StatusOK
	}
	n, err := x.ResponseWriter.Write(p)
	x.event.Bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (x *proxied) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// noteFate takes the guard's word for what became of the request.
func noteFate(r *http.Request, f httpkey.Disposition) {
	x := proxiedOf(r.Context())
	if x == nil {
		return
	}
	x.noteRef(f.Ref)
	if x.event.Code == "" && f.Code != httpkey.DispositionRan && f.Code != httpkey.DispositionReplay {
		x.event.Code = f.Code
	}
	switch {
	case !f.Enforced:
		x.event.Handling = HandlingObserved
		if f.Code == httpkey.DispositionReplay {
			x.event.Code = f.Code
		}
	case f.Code == "" && x.event.Code == "":
		x.event.Handling = HandlingPassed
	case f.Code == httpkey.DispositionReplay && !x.muted:
		x.event.Handling = HandlingReplayed
	case x.event.Attempt > 0:
		x.event.Handling = HandlingFresh
	case x.event.Status == http.StatusAccepted:
		x.event.Handling = HandlingAccepted
	default:
		x.event.Handling = HandlingRefused
	}
}

// noteRef notes the hashes of the key and of its tenant.
func (x *proxied) noteRef(ref retrysafe.Ref) {
	if ref.Key == "" || x.event.KeyHash != "" {
		return
	}
	x.event.KeyHash = retrysafe.HashKey(ref.Key)
	tenant, _ := httpkey.Caller(ref)
	x.event.ScopeHash = retrysafe.HashKey(tenant)
}

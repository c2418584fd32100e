package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/internal/failreason"
	"github.com/retrysafe/retrysafe/internal/neverresend"
)

// An upstreamCall is one guarded request at the upstream. Like a [passthrough] its
// proxy's hooks are methods of its own, and it is pooled.
type upstreamCall struct {
	route      *route
	proxy      httputil.ReverseProxy
	in         *http.Request
	w          http.ResponseWriter // the guard's
	run        *retrysafe.Execution
	x          *proxied
	body       []byte // of the response, held until it has ended
	incomplete error  // why the rest of a response that was not held did not come
}

func newUpstreamCall(rt *route) *upstreamCall {
	a := &upstreamCall{route: rt}
	a.proxy = httputil.ReverseProxy{
		Rewrite: a.rewrite, Transport: a, ErrorHandler: a.failed,
		BufferPool: &copyBuffers, ErrorLog: slog.NewLogLogger(rt.g.logger.Handler(), slog.LevelDebug),
	}
	return a
}

// callUpstream sends a request whose execution holds the key to the upstream.
func (rt *route) callUpstream(w http.ResponseWriter, r *http.Request, run *retrysafe.Execution) {
	x := proxiedOf(r.Context())
	held := w
	later := x == nil
	if later {
		x = &proxied{ResponseWriter: w, route: rt, began: time.Now(), event: Exchange{
			Method: r.Method, Path: r.URL.EscapedPath(), Route: rt.name, Later: true, Context: r.Context(),
		}}
		w = x
	}
	x.event.Attempt, x.event.Handling = run.Attempt(), HandlingFresh
	x.noteRef(run.Ref())
	if !rt.set.Async { // a worker's concurrency is the route's
		leave, full := rt.acquireSlots(run.Ref())
		if full != nil {
			x.event.Attempt, x.event.Handling, x.event.Code = 0, HandlingRefused, full.Code
			_ = run.Release(r.Context(), errors.New(full.Title)) // the guard tells the client if that failed
			rt.guard.Refuse(w, r, run.Ref().Key, full)
			return
		}
		defer leave()
	}
	ctx, cancel := context.WithTimeout(r.Context(), rt.timeout)
	defer cancel()
	a := rt.calls.Get()
	a.in, a.w, a.run, a.x, a.incomplete = r, held, run, x, nil
	began := time.Now()
	defer func() { // also when the proxy panics because the answer was cut off
		took := time.Since(began)
		rt.noteLatency(took)
		x.event.Upstream = took
		if later && rt.g.exchange != nil {
			x.event.Took = took
			rt.g.exchange(x.event)
		}
		a.in, a.w, a.run, a.x = nil, nil, nil, nil
		if cap(a.body) > maxReused {
			a.body = nil
		}
		rt.calls.Put(a)
	}()
	a.proxy.ServeHTTP(w, withoutUpgrade(r.WithContext(ctx))) // what has switched cannot be answered again
	if a.incomplete != nil {                                 // the proxy says so too, but only where it finds itself in a server
		panic(http.ErrAbortHandler) //nolint:forbidigo // so the guard is told that the response did not end
	}
}

const (
	// minBody is the memory for a body whose length is not known.
	minBody = 4 << 10
	// maxReused bounds the memory that an attempt leaves to the next one.
	maxReused = 64 << 10
	// largeAnswer is from how many bytes on the answers of one consumer are taken in by
	// turns, and largeTurn how long one waits for its turn at most.
	largeAnswer, largeTurn = 64 << 10, 100 * time.Millisecond
)

// rewrite makes the upstream's request of the client's.
func (a *upstreamCall) rewrite(p *httputil.ProxyRequest) {
	a.route.g.rewriteTarget(p)
	a.replaceKey(p.In.Header, p.Out.Header)
	delete(p.Out.Header, "Expect") // the body is here already
}

// errSwitched: nothing of that can be answered again.
var errSwitched = errors.New("the upstream switched protocols, and was not asked to")

// RoundTrip sends the request, once, and returns an answer only when it has come to its
// clean end: then an error is always the attempt's, and never half an answer. One
// beyond what is kept of answers comes as far as it has; its outcome is stored without
// a body before any of it goes on.
func (a *upstreamCall) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := a.route.g.upstream.once.RoundTrip(r)
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode == http.StatusSwitchingProtocols:
		res.Body.Close()
		return nil, errSwitched
	case res.StatusCode < minStatus:
		res.Body.Close()
		return nil, errStatus
	case a.route.set.Stream:
		res.Body = &streamedBody{res.Body, res.Body, a, false}
		return res, nil
	}
	if err := a.hold(res); err != nil {
		res.Body.Close()
		return nil, failreason.Cut(res.StatusCode, err)
	}
	return res, nil
}

// errCloseDelimited: a service that was killed in the middle of it leaves the same bytes.
var errCloseDelimited = errors.New("it has neither a Content-Length nor chunks and ended with its connection, so it may have been cut off; " +
	"let the service send a Content-Length, or set close_delimited on the route")

// isCloseDelimited reports whether only the end of its connection ends an answer. HTTP/2
// marks the end of every answer.
func isCloseDelimited(res *http.Response) bool {
	return res.ProtoMajor == 1 && res.ContentLength < 0 && len(res.TransferEncoding) == 0
}

// hold reads the body of an answer to its end, or to the first byte that is too much. An
// answer that cannot be known to be whole is an error, like one that was cut off. One
// that there is no memory for is treated as one that is too large, wherever it ends.
func (a *upstreamCall) hold(res *http.Response) error {
	if res.Body == http.NoBody {
		return nil
	}
	uncertain := isCloseDelimited(res) && !a.route.set.CloseDelimited
	body, most := a.body[:0], a.route.maxResponse
	endTurn := func() {}
	defer func() { endTurn() }()
	large := res.ContentLength > largeAnswer
	if large {
		endTurn = a.x.claim.Turn(largeTurn)
	}
	if n := max(res.ContentLength, minBody); n <= most && int64(cap(body)) <= n {
		if !a.x.holdAnswer(n) {
			return a.omit(res, nil)
		}
		body = make([]byte, 0, n+1) // one more, so that the end is seen without growing
	}
	for {
		if len(body) == cap(body) {
			if !a.x.holdAnswer(2 * int64(len(body))) {
				return a.omit(res, body)
			}
			if !large && len(body) >= largeAnswer { // its length was not announced
				large, endTurn = true, a.x.claim.Turn(largeTurn)
			}
			body = append(body, 0)[:len(body)]
		}
		n, err := res.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		a.body = body
		switch {
		case int64(len(body)) > most:
			res.Body = &streamedBody{io.MultiReader(bytes.NewReader(body), res.Body), res.Body, a, false}
			return nil
		case errors.Is(err, io.EOF) && uncertain:
			return errCloseDelimited
		case errors.Is(err, io.EOF):
			res.Body.Close()
			res.Body = io.NopCloser(bytes.NewReader(body))
			res.ContentLength = int64(len(body)) // it is here, so there is nothing to flush
			return nil
		case err != nil:
			return err
		}
	}
}

// omit lets an answer go on as it comes, which begins with what was read of it. The
// guard stores its outcome without the body, as it does for one over max_response.
func (a *upstreamCall) omit(res *http.Response, read []byte) error {
	a.route.g.noteLimit(admission.LimitAnswers, a.x.tenant)
	res.Body = &streamedBody{io.MultiReader(bytes.NewReader(read), res.Body), res.Body, a, true}
	return nil
}

// streamedBody is a body that goes on as it comes. It notes if it did not come to its
// end.
type streamedBody struct {
	io.Reader
	io.Closer
	of      *upstreamCall
	omitted bool // the guard is to store the outcome without it, before it is read
}

func (u *streamedBody) Read(p []byte) (int, error) {
	if u.omitted {
		u.omitted = false
		if guard, ok := u.of.w.(interface{ Omit() error }); ok { // the proxy has written the status
			if err := guard.Omit(); err != nil {
				return 0, err
			}
		}
	}
	n, err := u.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		u.of.incomplete = err
	}
	return n, err
}

// failed settles an attempt that got no clean answer by what is proven, and tells the
// client. If that cannot be stored the guard answers instead.
func (a *upstreamCall) failed(w http.ResponseWriter, r *http.Request, err error) {
	ctx, err := r.Context(), brief(err)
	problem := &unreachable
	if errors.Is(err, neverresend.ErrNotSent) {
		_ = a.run.Release(ctx, err)
	} else {
		_ = a.run.Fail(ctx, err)
		if problem = withTimeoutStatus(failed, err); a.run.State() == retrysafe.StateUnknown {
			problem = withTimeoutStatus(a.route.unclear(), err)
		}
	}
	ref := a.run.Ref()
	a.x.event.Err, a.x.event.Code = err, problem.Code
	a.route.g.logger.Warn("retrysafe: attempt failed", append([]any{"route", a.route.name, "key", retrysafe.HashKey(ref.Key),
		"attempt", a.run.Attempt(), "state", a.run.State().String(), "error", err}, a.route.g.upstream.remedyOf(err)...)...)
	a.route.guard.Refuse(w, a.in, ref.Key, problem)
}

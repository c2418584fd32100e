package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/failreason"
	"github.com/retrysafe/retrysafe/internal/neverresend"
)

// An upstreamCall is one guarded request at the upstream. It is pooled.
type upstreamCall struct {
	route      *route
	out        outbound
	in         *http.Request
	w          http.ResponseWriter // the guard's
	run        *retrysafe.Execution
	x          *proxied
	body       []byte // of the response, as far as it is held
	held       bool   // all of it is
	incomplete error  // why the rest of a response that was not held did not come
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
			rt.refuseUnsent(w, r, run, x, full)
			return
		}
		defer leave()
	}
	end, ok := x.claim.BeginExchange(rt.name, rt.turnWait())
	if !ok {
		rt.g.noteLimit(admission.LimitExchanges, x.tenant)
		rt.refuseUnsent(w, r, run, x, &crowded)
		return
	}
	defer end()
	a := rt.calls.Get()
	a.in, a.w, a.run, a.x, a.incomplete = r, held, run, x, nil
	a.held = false
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
		if !a.reusesBody() {
			a.body = nil
		}
		rt.calls.Put(a)
	}()
	a.call(w, r)
}

// refuseUnsent refuses a request that was not sent to the upstream, and gives its key back.
func (rt *route) refuseUnsent(w http.ResponseWriter, r *http.Request, run *retrysafe.Execution, x *proxied, why *httpkey.Problem) {
	x.event.Attempt, x.event.Handling, x.event.Code = 0, HandlingRefused, why.Code
	_ = run.Release(r.Context(), errors.New(why.Title)) // the guard tells the client if that failed
	rt.guard.Refuse(w, r, run.Ref().Key, why)
}

// reusesBody reports whether the next attempt gets the memory of the body.
func (a *upstreamCall) reusesBody() bool { return cap(a.body) <= maxReused }

// call sends the request to the upstream and its answer to the client.
func (a *upstreamCall) call(w http.ResponseWriter, r *http.Request) {
	g := a.route.g
	out := g.upstream.outbound(&a.out)
	defer out.forget()
	sent := r
	if !out.own {
		ctx, cancel := context.WithTimeout(r.Context(), a.route.timeout)
		defer cancel()
		sent = r.WithContext(ctx)
	}
	out.address(g, sent)
	a.replaceKey(r.Header, out.header)
	delete(out.header, "Expect") // the body is here already
	res, err := g.upstream.send(out, w, true, a.route.timeout)
	if err != nil {
		a.failed(w, r, a.named(err, failreason.Late))
		return
	}
	defer res.Body.Close()
	body, err := a.judge(res)
	switch {
	case err != nil:
		a.failed(w, r, err)
		return
	case a.held:
		err = relayHeld(w, res, a.body, !a.reusesBody())
	default:
		err = relay(w, res, body)
	}
	// Without a server there is no connection to cut off: the answer of a request that is run
	// later is the guard's, which knows what it was given.
	if err != nil && (a.incomplete != nil || r.Context().Value(http.ServerContextKey) != nil) {
		panic(http.ErrAbortHandler) //nolint:forbidigo // so the guard is told that the response did not end
	}
}

const (
	// minBody is the memory for a body whose length is not known.
	minBody = 4 << 10
	// maxReused bounds the memory that an attempt leaves to the next one.
	maxReused = 64 << 10
	// largeAnswer is from how many bytes on the answers of one consumer are taken in and
	// stored by turns.
	largeAnswer = 64 << 10
	// largeTurn is how long an exchange, and the answer that it has got, wait for their turns
	// at most: if many went on without one at the same moment, all other consumers would wait
	// for them.
	largeTurn = 5 * time.Second
)

// turnWait is how long a request of the route waits for a turn at most. The wait before the
// exchange is not part of the route's timeout, so both together must stay below MaxRun; the
// one for the answer is, and must not be why the answer comes too late.
func (rt *route) turnWait() time.Duration {
	return min(largeTurn, rt.timeout/20, (rt.policy.MaxRun-rt.timeout)/2)
}

// errSwitched: nothing of that can be answered again.
var errSwitched = errors.New("the upstream switched protocols, and was not asked to")

// judge lets an answer pass only when it has come to its clean end: then an error is always
// the attempt's, and never half an answer. One beyond what is kept of answers comes as far
// as it has, and the rest from the reader that is returned; its outcome is stored without a
// body before any of it goes on.
func (a *upstreamCall) judge(res *http.Response) (rest io.Reader, err error) {
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols:
		return nil, errSwitched // what has switched cannot be answered again
	case res.StatusCode < minStatus:
		return nil, errStatus
	case a.route.set.Stream:
		return &streamedBody{res.Body, a, false}, nil
	}
	if rest, err = a.hold(res); err != nil {
		return nil, failreason.Cut(res.StatusCode, a.named(err, failreason.LateEnd))
	}
	return rest, nil
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
// that there is no memory for is treated as one that is too large, wherever it ends. Of an
// answer that is not held it returns where all of it is read.
func (a *upstreamCall) hold(res *http.Response) (rest io.Reader, err error) {
	uncertain := isCloseDelimited(res) && !a.route.set.CloseDelimited
	body, most := a.body[:0], a.route.maxResponse
	endTurn := func() {}
	defer func() { endTurn() }()
	large := res.ContentLength > largeAnswer
	if large {
		a.x.claim.NoteLarge(a.route.name)
		endTurn = a.x.claim.Turn(res.ContentLength, a.route.turnWait())
	}
	if n := max(res.ContentLength, minBody); n <= most && int64(cap(body)) <= n {
		if !a.x.holdAnswer(n) {
			return a.omit(res, nil), nil
		}
		body = make([]byte, 0, n+1) // one more, so that the end is seen without growing
	}
	for {
		if len(body) == cap(body) {
			if !a.x.holdAnswer(2 * int64(len(body))) {
				return a.omit(res, body), nil
			}
			if !large && len(body) >= largeAnswer { // its length was not announced
				a.x.claim.NoteLarge(a.route.name)
				large, endTurn = true, a.x.claim.Turn(largeAnswer, a.route.turnWait())
			}
			body = append(body, 0)[:len(body)]
		}
		n, err := res.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		a.body = body
		switch {
		case int64(len(body)) > most:
			return &streamedBody{io.MultiReader(bytes.NewReader(body), res.Body), a, false}, nil
		case errors.Is(err, io.EOF) && uncertain:
			return nil, errCloseDelimited
		case errors.Is(err, io.EOF):
			a.held = true
			return nil, nil
		case err != nil:
			return nil, err
		}
	}
}

// omit lets an answer go on as it comes, which begins with what was read of it. The
// guard stores its outcome without the body, as it does for one over max_response.
func (a *upstreamCall) omit(res *http.Response, read []byte) io.Reader {
	a.route.g.noteLimit(admission.LimitAnswers, a.x.tenant)
	return &streamedBody{io.MultiReader(bytes.NewReader(read), res.Body), a, true}
}

// streamedBody is a body that goes on as it comes. It notes if it did not come to its
// end.
type streamedBody struct {
	io.Reader
	of      *upstreamCall
	omitted bool // the guard is to store the outcome without it, before it is read
}

func (u *streamedBody) Read(p []byte) (int, error) {
	if u.omitted {
		u.omitted = false
		if guard, ok := u.of.w.(interface{ Omit() error }); ok { // the status was written
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

// named returns an error of the exchange. If the route's timeout is over it is what late
// makes of it, so that the reason in logs and records names that time.
func (a *upstreamCall) named(err error, late func(time.Duration, error) error) error {
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, neverresend.ErrNotSent) || a.in.Context().Err() != nil {
		return err
	}
	return late(a.route.timeout, err)
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

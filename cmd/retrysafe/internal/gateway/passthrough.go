package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/neverresend"
	"github.com/retrysafe/retrysafe/internal/pool"
)

// A passthrough is one request that is proxied without a guard. It is pooled.
type passthrough struct {
	g      *Gateway
	out    outbound
	status int
	length int64
	err    error
	body   *requestBody // the body on its way, if there is one
}

// pass lets a request through. Route names the route that says so, if one does.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request, route string) {
	p := g.passthroughs.Get()
	if g.exchange == nil {
		p.serve(w, r)
		g.passthroughs.Put(p)
		return
	}
	began := time.Now()
	defer func() { // also when the proxy panics because the answer was cut off
		x := Exchange{
			Method: r.Method, Path: r.URL.EscapedPath(), Route: route, Handling: HandlingPassed,
			Status: p.status, Bytes: p.length, Took: time.Since(began), Err: p.err, Context: r.Context(),
		}
		x.Upstream = x.Took
		g.passthroughs.Put(p)
		g.exchange(x)
	}()
	p.serve(w, r)
}

// refuse refuses a request that is not served by a route. Route names the one that it would
// have taken, if that is known.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, route string, p *httpkey.Problem) {
	began, sent := time.Now(), &statusWriter{ResponseWriter: w}
	g.guard.Refuse(sent, r, "", p)
	if g.exchange != nil {
		g.exchange(Exchange{
			Method: r.Method, Path: r.URL.EscapedPath(), Route: route, Handling: HandlingRefused, Code: p.Code,
			Status: p.Status, Bytes: sent.bytes, Took: time.Since(began), Context: r.Context(),
		})
	}
}

// refuseAmbiguous refuses a request whose path may be one of two guarded routes, and logs at
// most once a second which: the client cannot know them.
func (g *Gateway) refuseAmbiguous(w http.ResponseWriter, r *http.Request, rt, rival *route) {
	if skipped, ok := g.pathLog.allow(); ok {
		g.logger.Warn("retrysafe: a path may be read as one of two guarded routes, so its request was refused", "method", r.Method, "route", rt.name, "rival", rival.name, "skipped", skipped,
			"fix", "if the service needs such paths, set ambiguous_paths: guard on the route of the path as it is sent, or let one pattern cover both readings; docs/problems/path-ambiguous.md")
	}
	g.refuse(w, r, rt.name, &ambiguous)
}

// forward lets a request of a guarded route through.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request) {
	p := g.passthroughs.Get()
	defer g.passthroughs.Put(p)
	p.serve(w, r)
	if x := proxiedOf(r.Context()); x != nil {
		x.event.Err = p.err
	}
}

func (p *passthrough) serve(w http.ResponseWriter, r *http.Request) {
	p.status, p.length, p.err, p.body = 0, 0, nil, nil
	if isWebSocket(r) {
		p.upgrade(w, r)
		return
	}
	out := p.g.upstream.outbound(&p.out)
	defer out.forget()
	out.address(p.g, r)
	if out.request.Body != nil && out.request.Body != http.NoBody {
		p.body = &requestBody{ReadCloser: r.Body}
		out.request.Body = p.body
		defer p.body.Close() // what a transport still reads of it then comes to its end
	}
	res, err := p.g.upstream.send(out, w, !isSafe(r.Method), 0)
	if err != nil {
		p.failed(w, r, err)
		return
	}
	defer res.Body.Close()
	if err := p.answered(res); err != nil {
		p.failed(w, r, err)
		return
	}
	if err := relay(w, res, res.Body); err != nil {
		panic(http.ErrAbortHandler) //nolint:forbidigo // so net/http is told to cut an answer off that was cut off
	}
}

// answered notes what the upstream has answered.
func (p *passthrough) answered(res *http.Response) error {
	if res.StatusCode < minStatus {
		return errStatus
	}
	if res.StatusCode == http.StatusSwitchingProtocols && !isWebSocket(res.Request) {
		return errSwitched
	}
	p.status, p.length = res.StatusCode, res.ContentLength
	return nil
}

// minStatus is the first that can be written. A transport takes any three digits for
// a status, also zeros; a server panics at them.
const minStatus = 100

var errStatus = errors.New("the upstream answered with a status that is none")

// A requestBody is the body of a client's request while it is sent. A transport may
// still read it after it has failed.
type requestBody struct {
	io.ReadCloser
	ended, broken, closed atomic.Bool
}

func (s *requestBody) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	switch {
	case errors.Is(err, io.EOF):
		s.ended.Store(true)
	case err != nil && !s.closed.Load():
		s.broken.Store(true)
	}
	return n, err
}

// Close is the transport's, which does not want the rest of a body whose upstream has
// failed: what it still reads then is no fault of the client's.
func (s *requestBody) Close() error {
	s.closed.Store(true)
	return s.ReadCloser.Close()
}

// failed answers for an upstream that did not, or for a client that did not send what
// it began.
func (p *passthrough) failed(w http.ResponseWriter, r *http.Request, err error) {
	if s := p.body; s != nil && !s.ended.Load() && (s.broken.Load() || r.Context().Err() != nil) {
		p.err, p.status = brief(err), brokenOff.Status
		p.g.guard.Refuse(w, r, "", &brokenOff)
		return
	}
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil { // the client has gone
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	err = brief(err)
	p.err = err
	problem := withTimeoutStatus(dropped, err)
	var dial *net.OpError
	var refused *tls.CertificateVerificationError
	if errors.Is(err, neverresend.ErrNotSent) || errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &refused) {
		problem = &unreachable
	}
	p.status = problem.Status
	p.g.logger.Warn("retrysafe: the upstream did not answer", append([]any{"method", r.Method, "error", err}, p.g.upstream.remedyOf(err)...)...)
	p.g.guard.Refuse(w, r, "", problem)
}

// copyBuffers are memory for bodies on their way.
var copyBuffers buffers

type buffers struct{ pool pool.Of[[copyBuffer]byte] }

const copyBuffer = 32 << 10

// Get implements [httputil.BufferPool].
func (b *buffers) Get() []byte {
	return b.pool.Get()[:]
}

// Put implements [httputil.BufferPool].
func (b *buffers) Put(buf []byte) { b.pool.Put((*[copyBuffer]byte)(buf)) }

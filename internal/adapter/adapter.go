// Package adapter is what the adapters of web frameworks have in common: a guard that
// takes scope and operation from the framework's own context. The adapters are modules of
// their own, which may be older than this package, so it changes compatibly.
package adapter

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

// A Framework is what a guard has to know of a framework whose context is a C.
type Framework[C any] struct {
	// Adapter is the name in errors.
	Adapter string
	// Pattern returns the pattern of the route that a request belongs to, empty if it is
	// unknown: then the request is refused.
	Pattern func(C) string
	// Reuses says that the memory of the framework's texts belongs to the next request
	// when this one has ended.
	Reuses bool
}

// A Guard guards the handlers behind a middleware.
type Guard[C any] struct {
	guard    *httpkey.Guard
	logger   *slog.Logger
	observes bool
}

// New returns a guard. Opts may be nil.
func (f Framework[C]) New(e *retrysafe.Engine, scope func(C) (string, error), opts *httpkey.Options) (*Guard[C], error) {
	var o httpkey.Options
	if opts != nil {
		o = *opts
	}
	switch {
	case scope == nil:
		return nil, errors.New(f.Adapter + ": New needs a scope: without one a caller could get another's answers")
	case o.Async:
		return nil, errors.New(f.Adapter + ": Async is not possible here, because a worker cannot run the framework's handlers; use httpkey around an http.Handler")
	}
	own := func(s string) string { return s }
	if f.Reuses {
		own = strings.Clone // the store keeps scope and operation
	}
	if named := o.Operation; named != nil {
		o.Operation = func(r *http.Request) string { return own(named(r)) }
	} else {
		names := new(operations)
		o.Operation = func(r *http.Request) string { return names.of(r.Method, f.Pattern(Of[C](r))) }
	}
	g, err := httpkey.New(e, func(r *http.Request) (string, error) {
		tenant, err := scope(Of[C](r))
		return own(tenant), err
	}, &o)
	if err != nil {
		return nil, err
	}
	return &Guard[C]{g, cmp.Or(o.Logger, slog.Default()), o.Observe}, nil
}

// A Call is one request in a middleware.
type Call[C any] struct {
	io.ReadCloser // the request's own body
	// Of is the framework's context.
	Of C
	// Next runs the handlers behind the middleware. W is that of [Guard.Serve] if the
	// request passes unguarded.
	Next func(x *Call[C], w http.ResponseWriter, r *http.Request)
	// Returned says that they have run to their end, and Failure what they returned, for
	// an adapter that passes it on.
	Returned bool
	Failure  error

	unread int64 // the length of the body, until the guard has read a part of it
	logger *slog.Logger
}

type callKey[C any] struct{}

// Serve serves a request of x. The guard's functions find x by the request's body: a
// context would need a copy of the request. Only in observe mode the body is replaced, and
// there is such a copy.
func (g *Guard[C]) Serve(w http.ResponseWriter, r *http.Request, x *Call[C]) {
	if g.observes {
		r = r.WithContext(context.WithValue(r.Context(), callKey[C]{}, x))
	} else {
		if x.ReadCloser = r.Body; r.Body == nil {
			x.ReadCloser = http.NoBody
		}
		x.unread, x.logger = r.ContentLength, g.logger
		r.Body = x
		defer func() { r.Body = x.ReadCloser }()
	}
	g.guard.Handler(x).ServeHTTP(w, r)
}

var errBodyGone = errors.New("the body was read before the guard")

// Read reads the body for the guard. If other middleware has read it already, two different
// requests would look the same, so that is an error.
func (x *Call[C]) Read(p []byte) (int, error) {
	n, err := x.ReadCloser.Read(p)
	if n == 0 && errors.Is(err, io.EOF) && x.unread > 0 {
		x.logger.Error("retrysafe: a middleware before the guard has read the body; place it behind the guard", "bytes", x.unread)
		return 0, errBodyGone
	}
	if n > 0 {
		x.unread = 0
	}
	return n, err
}

// ServeHTTP is what the guard calls.
func (x *Call[C]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Body == io.ReadCloser(x) { // the request passes unguarded
		r.Body = x.ReadCloser
	}
	x.Next(x, w, r)
}

// held is the response that a guard holds.
type held interface{ RollBack() }

// Guarded reports whether w is the response that a guard holds, not one that it only
// observes or lets pass.
func Guarded(w http.ResponseWriter) bool {
	_, ok := w.(held)
	return ok
}

// Failed reports whether a handler ended with an error. If it ran in the transaction of
// httpkey.Options.Tx, its writes are rolled back, whatever is written to w for the error.
func Failed(w http.ResponseWriter, err error) bool {
	if h, ok := w.(held); ok && err != nil {
		h.RollBack()
	}
	return err != nil
}

// Of returns the framework's context of a request that a guard has not let through yet, and
// the zero C for any other request.
func Of[C any](r *http.Request) (c C) {
	x, ok := r.Body.(*Call[C])
	if !ok {
		x, ok = r.Context().Value(callKey[C]{}).(*Call[C])
	}
	if ok {
		c = x.Of
	}
	return c
}

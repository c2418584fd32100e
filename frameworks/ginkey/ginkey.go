// Package ginkey makes routes of gin retry-safe: it is httpkey as a middleware of gin.
package ginkey

import (
	"bufio"
	"cmp"
	"fmt"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/adapter"
)

type call = adapter.Call[*gin.Context]

var framework = adapter.Framework[*gin.Context]{Adapter: "ginkey", Pattern: (*gin.Context).FullPath}

// New returns a middleware for routes and groups. It belongs behind authentication, whose
// values scope finds in the gin.Context, and before middleware that renders the errors of
// c.Error: the answer that is stored is what is written behind it. The operation is the
// route's pattern, as in "POST /accounts/:id/charges". Opts may be nil.
func New(e *retrysafe.Engine, scope func(*gin.Context) (string, error), opts *httpkey.Options) (gin.HandlerFunc, error) {
	g, err := framework.New(e, scope, opts)
	if err != nil {
		return nil, err
	}
	return func(c *gin.Context) {
		x := &call{Of: c, Next: next}
		defer restore(x, c.Request, c.Writer)
		g.Serve(c.Writer, c.Request, x)
	}, nil
}

// Context returns the gin.Context of a request, in the functions of httpkey.Options.
func Context(r *http.Request) *gin.Context { return adapter.Of[*gin.Context](r) }

// next runs the handlers behind the middleware.
func next(x *call, w http.ResponseWriter, r *http.Request) {
	c, errs := x.Of, len(x.Of.Errors)
	c.Request = r
	var held *writer
	if w != http.ResponseWriter(c.Writer) { // otherwise the request passes unguarded
		held = &writer{c.Writer, w, adapter.Guarded(w), 0, -1}
		c.Writer = held
	}
	c.Next()
	x.Returned = true
	failed := len(c.Errors) > errs && adapter.Failed(w, c.Errors.Last())
	switch {
	case held == nil:
	case held.status != 0: // perhaps only by c.Status, which gin sends at the end of the request
		held.WriteHeaderNow()
	case failed && !held.Written(): // a middleware before this one would render it, too late
		httpkey.Fail(w, fmt.Errorf("ginkey: a handler called c.Error and nothing wrote a response: place the middleware that renders errors behind ginkey's: %w", c.Errors.Last()))
	}
}

// restore ends a call. After a replay, a refusal or a panic gin must not go on to the next
// handler.
func restore(x *call, r *http.Request, w gin.ResponseWriter) {
	x.Of.Request, x.Of.Writer = r, w
	if !x.Returned {
		x.Of.Abort()
	}
}

// writer is gin's view of the response that a guard holds.
type writer struct {
	gin.ResponseWriter                     // the client's; nothing is written to it here
	held               http.ResponseWriter // the guard's
	guarded            bool                // and not only observed
	status             int                 // zero until the handler sets it
	size               int                 // negative until something is written
}

func (w *writer) Header() http.Header               { return w.held.Header() }
func (w *writer) Status() int                       { return cmp.Or(w.status, http.StatusOK) }
func (w *writer) Size() int                         { return w.size }
func (w *writer) Written() bool                     { return w.size >= 0 }
func (w *writer) WriteString(s string) (int, error) { return w.Write([]byte(s)) }
func (w *writer) Flush()                            { w.WriteHeaderNow(); _ = http.NewResponseController(w.held).Flush() }
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.held).Hijack()
}

// WriteHeader sets the status. It may change until something is written, as gin has it.
func (w *writer) WriteHeader(status int) {
	if status > 0 && !w.Written() {
		w.status = status
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.held.WriteHeader(w.Status())
	}
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.held.Write(p)
	w.size += n
	return n, err
}

// Unwrap lets httpkey.CompleteTx find the response. The status is a part of it.
func (w *writer) Unwrap() http.ResponseWriter {
	if w.status != 0 {
		w.WriteHeaderNow()
	}
	return w.held
}

// CloseNotify does not notify a guarded handler that its client has disconnected: it goes
// on, and a retry gets its whole answer.
func (w *writer) CloseNotify() <-chan bool {
	if w.guarded {
		return nil
	}
	return w.ResponseWriter.CloseNotify()
}

// Package fiberkey makes routes of fiber retry-safe: it is httpkey as a middleware of
// fiber.
package fiberkey

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/adapter"
)

type call = adapter.Call[fiber.Ctx]

var framework = adapter.Framework[fiber.Ctx]{Adapter: "fiberkey", Pattern: pattern, Reuses: true}

// New returns a middleware that belongs on each route, behind authentication, whose values
// scope finds in the fiber.Ctx: app.Post("/accounts/:id/charges", auth, guard, charge). In
// app.Use it does not know the route yet, and refuses. The operation is the route's
// pattern, as in "POST /accounts/:id/charges". An error that a handler returns is rendered
// by the app's ErrorHandler behind the guard, so that the answer that is stored is the one
// that the client gets. A handler that streams its response fails. Opts may be nil.
func New(e *retrysafe.Engine, scope func(fiber.Ctx) (string, error), opts *httpkey.Options) (fiber.Handler, error) {
	g, err := framework.New(e, scope, opts)
	if err != nil {
		return nil, err
	}
	return func(c fiber.Ctx) error {
		x := &call{Of: c, Next: next}
		r, err := request(c)
		if err != nil {
			return fiber.NewError(fiber.StatusBadRequest, "the request target is malformed")
		}
		defer c.SetContext(c.Context())
		w := new(client)
		g.Serve(w, r, x)
		w.send(c.Response())
		if !x.Returned && c.Request().IsBodyStream() {
			c.RequestCtx().SetConnectionClose() // the rest of the body is not the next request
		}
		return x.Failure
	}, nil
}

// Context returns the fiber.Ctx of a request, in the functions of httpkey.Options.
func Context(r *http.Request) fiber.Ctx { return adapter.Of[fiber.Ctx](r) }

// pattern returns the pattern of the route. Before a route has matched, c has that of the
// middleware itself.
func pattern(c fiber.Ctx) string {
	if !c.Matched() {
		return ""
	}
	return c.Route().Path
}

// handle runs the handlers behind the middleware, and renders their error as fiber does.
func handle(c fiber.Ctx, w http.ResponseWriter) {
	if err := c.Next(); adapter.Failed(w, err) && c.App().ErrorHandler(c, err) != nil {
		_ = c.SendStatus(fiber.StatusInternalServerError)
	}
}

// next serves a request that the guard lets through.
func next(x *call, w http.ResponseWriter, r *http.Request) {
	c := x.Of
	if _, passes := w.(*client); passes {
		x.Returned, x.Failure = true, c.Next()
		return
	}
	if !adapter.Guarded(w) { // it is only observed
		handle(c, w)
		w.WriteHeader(c.Response().StatusCode())
		return
	}
	c.SetContext(r.Context())
	a := &answer{w: w}
	fiber.Locals(c, answerKey{}, a)
	// What middleware before the guard has set is not part of the answer.
	out, outer := c.Response(), fasthttp.AcquireResponse()
	out.CopyTo(outer)
	defer func() {
		out.Reset() // ends a stream
		outer.CopyTo(out)
		fasthttp.ReleaseResponse(outer)
		fiber.Locals[*answer](c, answerKey{}, nil)
	}()
	out.Reset()
	out.Header.SetNoDefaultContentType(true)
	handle(c, w)
	switch {
	case out.IsBodyStream():
		httpkey.Fail(w, errStream)
	case c.RequestCtx().Hijacked():
		c.RequestCtx().Hijack(nil)
		httpkey.Fail(w, errHijack)
	case !a.taken:
		copyOut(w, out)
	}
}

var (
	errStream   = errors.New("fiberkey: a body stream on a guarded route cannot be stored: send the whole body")
	errHijack   = fmt.Errorf("fiberkey: Hijack on a guarded route: %w", http.ErrNotSupported)
	errComplete = errors.New("fiberkey: CompleteTx was called before in this request")
)

// An answer is where the response of a guarded handler goes.
type answer struct {
	w     http.ResponseWriter
	taken bool // by CompleteTx
}

type answerKey struct{}

// CompleteTx is httpkey.CompleteTx for handlers of fiber: it stores the response that c has
// so far in the handler's transaction. Call it once, as the last step before the commit.
// On an error the transaction is rolled back already. Outside a guard it does nothing.
func CompleteTx(c fiber.Ctx, tx retrysafe.Tx) error {
	a := fiber.Locals[*answer](c, answerKey{})
	switch {
	case a == nil:
		return nil
	case a.taken:
		return errors.Join(errComplete, tx.Rollback(c.Context()))
	}
	a.taken = true
	copyOut(a.w, c.Response())
	return httpkey.CompleteTx(c.Context(), a.w, tx)
}

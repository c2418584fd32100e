// Package echokey makes routes of echo retry-safe: it is httpkey as a middleware of echo.
package echokey

import (
	"fmt"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/adapter"
)

type call = adapter.Call[*echo.Context]

var framework = adapter.Framework[*echo.Context]{Adapter: "echokey", Pattern: (*echo.Context).Path}

// New returns a middleware for routes, groups and Use. It belongs behind authentication,
// whose values scope finds in the echo.Context. An error that a handler returns is rendered
// by echo's HTTPErrorHandler behind the guard, so that the answer that is stored is the one
// that the client gets; middleware before the guard does not see the error. The operation
// is the route's pattern, as in "POST /accounts/:id/charges". Opts may be nil.
func New(e *retrysafe.Engine, scope func(*echo.Context) (string, error), opts *httpkey.Options) (echo.MiddlewareFunc, error) {
	g, err := framework.New(e, scope, opts)
	if err != nil {
		return nil, err
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		run := handler(next)
		return func(c *echo.Context) error {
			r, w := c.Request(), c.Response()
			defer func() {
				c.SetRequest(r)
				c.SetResponse(w)
			}()
			x := &call{Of: c, Next: run}
			g.Serve(w, r, x)
			return x.Failure
		}
	}, nil
}

// Context returns the echo.Context of a request, in the functions of httpkey.Options.
func Context(r *http.Request) *echo.Context { return adapter.Of[*echo.Context](r) }

// handler runs the handlers behind the middleware.
func handler(next echo.HandlerFunc) func(*call, http.ResponseWriter, *http.Request) {
	return func(x *call, w http.ResponseWriter, r *http.Request) {
		c := x.Of
		c.SetRequest(r)
		if w == c.Response() { // the request passes unguarded
			x.Failure = next(c)
			return
		}
		held := echo.NewResponse(w, c.Logger())
		c.SetResponse(held)
		if err := next(c); adapter.Failed(w, err) {
			if c.Echo().HTTPErrorHandler(c, err); !held.Committed {
				httpkey.Fail(w, fmt.Errorf("echokey: the HTTPErrorHandler of echo wrote no response for the error of a handler: %w", err))
			}
		}
	}
}

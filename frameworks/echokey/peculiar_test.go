package echokey_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/echokey"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/adaptertest"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A bed is an application with one guarded route.
type bed struct {
	app   *echo.Echo
	guard echo.MiddlewareFunc
	log   strings.Builder
}

func newBed(t *testing.T, o httpkey.Options) *bed {
	t.Helper()
	b := &bed{app: echo.New()}
	b.app.Logger = slog.New(slog.DiscardHandler)
	o.Logger = slog.New(slog.NewTextHandler(&b.log, nil))
	e, err := retrysafe.New(memstore.New(nil), nil)
	must(t, err)
	b.guard, err = echokey.New(e, tenant, &o)
	must(t, err)
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bed) post(t *testing.T) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader(`{}`))
	r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
	w := httptest.NewRecorder()
	b.app.ServeHTTP(w, r)
	return w
}

func refuses(*echo.Context) error { return adaptertest.ErrRefused }

// The stored answer of an error is that of the application's own HTTPErrorHandler, which
// runs once.
func TestErrorsAreRenderedByTheApplication(t *testing.T) {
	t.Parallel()
	b, rendered := newBed(t, httpkey.Options{}), 0
	b.app.HTTPErrorHandler = func(c *echo.Context, err error) {
		rendered++
		c.Response().Header().Set("Location", "/help")
		_ = c.JSON(http.StatusConflict, map[string]string{"said": err.Error()})
	}
	b.app.POST("/charges", refuses, b.guard)
	for range 2 {
		if got := b.post(t); got.Code != http.StatusConflict || !strings.Contains(got.Body.String(), adaptertest.ErrRefused.Error()) || got.Header().Get("Location") != "/help" {
			t.Errorf("got %d %s %v", got.Code, got.Body, got.Header())
		}
	}
	if rendered != 1 {
		t.Errorf("the error was rendered %d times, want once", rendered)
	}
}

// An HTTPErrorHandler that writes nothing leaves no empty 200 behind.
func TestErrorThatIsNotRendered(t *testing.T) {
	t.Parallel()
	b := newBed(t, httpkey.Options{})
	b.app.HTTPErrorHandler = func(*echo.Context, error) {}
	b.app.POST("/charges", refuses, b.guard)
	if got := b.post(t); got.Code != http.StatusInternalServerError || !strings.Contains(got.Body.String(), "attempt-unknown") {
		t.Errorf("got %d %s, want 500 attempt-unknown", got.Code, got.Body)
	}
	if log := b.log.String(); !strings.Contains(log, "wrote no response") || !strings.Contains(log, adaptertest.ErrRefused.Error()) {
		t.Errorf("the log does not say what is wrong: %s", log)
	}
	if got := b.post(t); got.Code != http.StatusConflict {
		t.Errorf("the retry gets %d %s, want 409", got.Code, got.Body)
	}
}

// An error after the response is written does not change the answer.
func TestErrorAfterTheAnswer(t *testing.T) {
	t.Parallel()
	b := newBed(t, httpkey.Options{})
	b.app.POST("/charges", func(c *echo.Context) error {
		return errors.Join(c.String(http.StatusCreated, "made"), adaptertest.ErrBroken)
	}, b.guard)
	for range 2 {
		if got := b.post(t); got.Code != http.StatusCreated || got.Body.String() != "made" {
			t.Errorf("got %d %s", got.Code, got.Body)
		}
	}
}

// Before the router has run, the route is unknown.
func TestPreIsRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t, httpkey.Options{})
	b.app.Pre(b.guard)
	b.app.POST("/charges", func(*echo.Context) error {
		t.Error("the handler ran")
		return nil
	})
	if got := b.post(t); got.Code != http.StatusInternalServerError || !strings.Contains(got.Body.String(), "route-unknown") {
		t.Errorf("got %d %s, want 500 route-unknown", got.Code, got.Body)
	}
}

// Without its body a request looks like any other one.
func TestBodyThatWasReadBefore(t *testing.T) {
	t.Parallel()
	b := newBed(t, httpkey.Options{})
	reads := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			_, _ = io.ReadAll(c.Request().Body)
			return next(c)
		}
	}
	b.app.POST("/charges", func(*echo.Context) error {
		t.Error("the handler ran")
		return nil
	}, reads, b.guard)
	if got := b.post(t); got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), "body-unreadable") {
		t.Errorf("got %d %s, want 400 body-unreadable", got.Code, got.Body)
	}
	if log := b.log.String(); !strings.Contains(log, "place it behind the guard") {
		t.Errorf("the log does not say what to do: %s", log)
	}
}

// Middleware before the guard finds its own request and response again, and what the client
// got.
func TestOuterMiddlewareFindsItsContext(t *testing.T) {
	t.Parallel()
	b := newBed(t, httpkey.Options{})
	var seen []string
	outer := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			r, w := c.Request(), c.Response()
			err := next(c)
			res, _ := echo.UnwrapResponse(c.Response())
			seen = append(seen, fmt.Sprint(r == c.Request(), w == c.Response(), err, res.Status, res.Size, res.Committed))
			return err
		}
	}
	b.app.POST("/charges", func(c *echo.Context) error { return c.String(http.StatusCreated, "made") }, outer, b.guard)
	b.post(t)
	b.post(t)
	const want = "true true <nil> 201 4 true"
	if !slices.Equal(seen, []string{want, want}) {
		t.Errorf("seen %q, want %q twice", seen, want)
	}
}

// The functions of the options find the echo.Context too.
func TestOptionsFindTheContext(t *testing.T) {
	t.Parallel()
	user := "alice"
	b := newBed(t, httpkey.Options{Bind: func(r *http.Request) (string, error) { return fmt.Sprint(echokey.Context(r).Get("user")), nil }})
	login := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("user", user)
			return next(c)
		}
	}
	b.app.POST("/charges", func(c *echo.Context) error { return c.String(http.StatusCreated, user) }, login, b.guard)
	b.post(t)
	user = "bob"
	if got := b.post(t); got.Body.String() != "bob" {
		t.Errorf("got %s, want the answer of another user's key", got.Body)
	}
	if c := echokey.Context(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)); c != nil {
		t.Errorf("a request that echo does not handle has the context %v", c)
	}
}

// What the adapter is for: with echo's own wrapper around the guard, an error is rendered
// outside, after the answer was taken.
func TestWrapMiddlewareLosesTheError(t *testing.T) {
	t.Parallel()
	e, err := retrysafe.New(memstore.New(nil), nil)
	must(t, err)
	g, err := httpkey.New(e, func(*http.Request) (string, error) { return "acme", nil }, &httpkey.Options{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	b := &bed{app: echo.New()}
	b.app.Logger = slog.New(slog.DiscardHandler)
	b.app.POST("/charges", refuses, echo.WrapMiddleware(g.Handler))
	if got := b.post(t); strings.Contains(got.Body.String(), adaptertest.ErrRefused.Error()) || got.Code == http.StatusPaymentRequired {
		t.Errorf("got %d %s: the wrapper renders errors behind the guard now, and docs/frameworks.md says that it does not", got.Code, got.Body)
	}
}

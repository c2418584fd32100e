package fiberkey_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/fiberkey"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/adaptertest"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A bed is an application with one guarded route.
type bed struct {
	app   *fiber.App
	guard fiber.Handler
	mem   *memstore.Store
	url   string

	mu  sync.Mutex
	log strings.Builder
}

func newBed(t *testing.T, config fiber.Config, o httpkey.Options) *bed {
	t.Helper()
	b := &bed{app: fiber.New(config), mem: memstore.New(nil)}
	o.Logger = slog.New(slog.NewTextHandler(b, nil))
	e, err := retrysafe.New(b.mem, nil)
	must(t, err)
	b.guard, err = fiberkey.New(e, tenant, &o)
	must(t, err)
	return b
}

func (b *bed) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type response struct {
	status int
	header http.Header
	body   string
	closed bool // and so is the connection
}

// post sends a request; the first one starts the server.
func (b *bed) post(t *testing.T, path string, body io.Reader) response {
	t.Helper()
	if b.url == "" {
		b.url = listen(t, b.app)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+path, body)
	must(t, err)
	r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
	client := http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	res, err := client.Do(r)
	must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(t, err)
	return response{res.StatusCode, res.Header, string(text), res.Close}
}

// The stored answer of an error is that of the app's own ErrorHandler, which runs once.
func TestErrorsAreRenderedByTheApplication(t *testing.T) {
	t.Parallel()
	rendered := 0
	b := newBed(t, fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
		rendered++
		c.Set("Location", "/help")
		return c.Status(fiber.StatusConflict).JSON(fiber.Map{"said": err.Error()})
	}}, httpkey.Options{})
	b.app.Post("/", b.guard, func(fiber.Ctx) error { return adaptertest.ErrRefused })
	for range 2 {
		if got := b.post(t, "/", nil); got.status != http.StatusConflict || !strings.Contains(got.body, adaptertest.ErrRefused.Error()) || got.header.Get("Location") != "/help" {
			t.Errorf("got %+v", got)
		}
	}
	if rendered != 1 {
		t.Errorf("the error was rendered %d times, want once", rendered)
	}
}

// An ErrorHandler that fails itself is what fiber makes of it: a 500, which is no success.
func TestErrorHandlerThatFails(t *testing.T) {
	t.Parallel()
	b := newBed(t, fiber.Config{ErrorHandler: func(_ fiber.Ctx, err error) error { return err }}, httpkey.Options{})
	b.app.Post("/", b.guard, func(fiber.Ctx) error { return adaptertest.ErrRefused })
	if got := b.post(t, "/", nil); got.status != http.StatusInternalServerError {
		t.Errorf("got %+v, want 500", got)
	}
	if got := b.post(t, "/", nil); got.status != http.StatusConflict {
		t.Errorf("the retry gets %+v, want 409", got)
	}
}

// In Use the middleware knows its own path and not the route's, so it refuses.
func TestUseIsRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t, fiber.Config{}, httpkey.Options{})
	b.app.Use("/charges", b.guard)
	b.app.Post("/charges/:id", func(fiber.Ctx) error {
		t.Error("the handler ran")
		return nil
	})
	if got := b.post(t, "/charges/1", nil); got.status != http.StatusInternalServerError || !strings.Contains(got.body, "route-unknown") {
		t.Errorf("got %+v, want 500 route-unknown", got)
	}
}

// Routes of groups and mounted apps have their whole pattern.
func TestPatternIsWhole(t *testing.T) {
	t.Parallel()
	b := newBed(t, fiber.Config{}, httpkey.Options{PerOperation: true})
	h := func(c fiber.Ctx) error { return c.Status(fiber.StatusCreated).SendString("made") }
	sub := fiber.New()
	sub.Post("/charges/:id", b.guard, h)
	b.app.Use("/mounted", sub)
	b.app.Group("/grouped").Post("/charges/:id", b.guard, h)
	var got []string
	for _, path := range []string{"/mounted/charges/1", "/grouped/charges/1"} {
		if r := b.post(t, path, nil); r.status != http.StatusCreated {
			t.Errorf("%s: got %+v", path, r)
		}
	}
	all, err := b.mem.List(t.Context(), retrysafe.Query{Limit: 10})
	must(t, err)
	for _, r := range all {
		got = append(got, r.Operation)
	}
	slices.Sort(got)
	if want := []string{"POST /grouped/charges/:id", "POST /mounted/charges/:id"}; !slices.Equal(got, want) {
		t.Errorf("the operations are %q, want %q", got, want)
	}
}

// A body that fiber hands on as a stream is bounded by fiber's own limit too, and the
// handler gets the whole of it.
func TestStreamedBody(t *testing.T) {
	t.Parallel()
	b := newBed(t, fiber.Config{StreamRequestBody: true, BodyLimit: 100_000}, httpkey.Options{MaxRequest: 1 << 30})
	b.app.Post("/", b.guard, func(c fiber.Ctx) error { return c.SendString(fmt.Sprint(len(c.Body()))) })
	chunked := func(n int) io.Reader { return io.MultiReader(strings.NewReader(strings.Repeat("x", n))) } // of no known length
	if got := b.post(t, "/", chunked(100_001)); got.status != http.StatusRequestEntityTooLarge || !strings.Contains(got.body, "body-too-large") || !got.closed {
		t.Errorf("got %+v, want 413 body-too-large and the connection closed, in which there is more of the body", got)
	}
	for range 2 {
		if got := b.post(t, "/", chunked(100_000)); got.status != http.StatusOK || got.body != "100000" || got.closed {
			t.Errorf("got %+v", got)
		}
	}
}

// The second transaction of a request would be given the response of the first.
func TestCompleteTxOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t, fiber.Config{}, httpkey.Options{Policy: &retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
	b.app.Post("/", b.guard, func(c fiber.Ctx) error {
		first, err := b.mem.Begin(c.Context())
		must(t, err)
		second, err := b.mem.Begin(c.Context())
		must(t, err)
		must(t, c.Status(fiber.StatusCreated).SendString("first"))
		must(t, fiberkey.CompleteTx(c, first))
		if err := fiberkey.CompleteTx(c, second); err == nil || !strings.Contains(err.Error(), "called before") {
			t.Errorf("the second gets %v", err)
		}
		if err := second.Commit(context.WithoutCancel(c.Context())); err == nil {
			t.Error("the second could commit")
		}
		return first.Commit(c.Context())
	})
	for range 2 {
		if got := b.post(t, "/", nil); got.status != http.StatusCreated || got.body != "first" {
			t.Errorf("got %+v", got)
		}
	}
}

// Outside a guard CompleteTx does nothing, so that handlers stay testable.
func TestCompleteTxOutsideAGuard(t *testing.T) {
	t.Parallel()
	b := newBed(t, fiber.Config{}, httpkey.Options{})
	b.app.Post("/", func(c fiber.Ctx) error { return fiberkey.CompleteTx(c, nil) })
	if got := b.post(t, "/", nil); got.status != http.StatusOK {
		t.Errorf("got %+v", got)
	}
}

// Middleware before the guard finds its own context again.
func TestOuterMiddlewareFindsItsContext(t *testing.T) {
	t.Parallel()
	type name struct{}
	b := newBed(t, fiber.Config{}, httpkey.Options{})
	outer := func(c fiber.Ctx) error {
		c.SetContext(context.WithValue(c.Context(), name{}, "outer"))
		err := c.Next()
		if _, guarded := retrysafe.FromContext(c.Context()); guarded || c.Context().Value(name{}) != "outer" {
			t.Error("the context is that of the handler")
		}
		return err
	}
	b.app.Post("/", outer, b.guard, func(c fiber.Ctx) error {
		if _, guarded := retrysafe.FromContext(c.Context()); !guarded || c.Context().Value(name{}) != "outer" {
			return errors.New("the context is not that of the execution")
		}
		return c.SendString("made")
	})
	for range 2 {
		if got := b.post(t, "/", nil); got.status != http.StatusOK || got.body != "made" {
			t.Errorf("got %+v", got)
		}
	}
}

// The functions of the options find the fiber.Ctx too, and texts in its memory are copied.
func TestOptionsFindTheContext(t *testing.T) {
	t.Parallel()
	b := newBed(t, fiber.Config{}, httpkey.Options{Operation: func(r *http.Request) string { return fiberkey.Context(r).Get("Idempotency-Key") }})
	b.app.Post("/", b.guard, func(c fiber.Ctx) error { return c.SendString("made") })
	b.post(t, "/", nil)
	for range 20 {
		b.post(t, "/?"+strings.Repeat("x", 100), strings.NewReader(strings.Repeat("y", 300)))
	}
	all, err := b.mem.List(t.Context(), retrysafe.Query{Limit: 10})
	must(t, err)
	if len(all) != 1 || all[0].Operation != "8e03978e-40d5-43dd-bc93-6894a57f9324" {
		t.Errorf("stored is %+v", all)
	}
	if c := fiberkey.Context(new(http.Request)); c != nil {
		t.Errorf("a request that fiber does not handle has the context %v", c)
	}
}

package fiberkey_test

import (
	"bufio"
	"errors"
	"net"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/fiberkey"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/adaptertest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]fiber.Config{
		"default":         {},
		"streamed bodies": {StreamRequestBody: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adaptertest.Run(t, adaptertest.Adapter{Pattern: "POST /accounts/:id/charges", Streams: true, Serve: func(t *testing.T, s *adaptertest.Service) string {
				t.Helper()
				return serve(t, s, config)
			}})
		})
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	adaptertest.BadInput(t, "fiberkey", func(e *retrysafe.Engine, scope bool, o *httpkey.Options) error {
		of := tenant
		if !scope {
			of = nil
		}
		_, err := fiberkey.New(e, of, o)
		return err
	})
}

// tenant returns a text in fasthttp's own memory, as c.Get does.
var tenant = func(c fiber.Ctx) (string, error) { return adaptertest.Tenant(fiber.Locals[string](c, "tenant")) }

func auth(c fiber.Ctx) error {
	c.Locals("tenant", c.Get("X-Tenant"))
	c.Set("Deprecation", c.Get("X-Outer"))
	return c.Next()
}

// serve is the service on fiber.
func serve(t *testing.T, s *adaptertest.Service, config fiber.Config) string {
	t.Helper()
	guard, err := fiberkey.New(s.Engine, tenant, s.Options)
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New(config)
	app.Use(auth)
	post := func(path string, h fiber.Handler) { app.Post(path, guard, h) }
	if s.Everywhere {
		app.Use(guard)
		post = func(path string, h fiber.Handler) { app.Post(path, h) }
	}
	charge := func(c fiber.Ctx) error {
		a := s.Charge(c.Context(), c.Params("id"), c.Body())
		for name, values := range a.Header {
			for _, value := range values {
				c.Response().Header.Add(name, value)
			}
		}
		return c.Status(a.Status).Send(a.Body)
	}
	post("/accounts/:id/charges", charge)
	post("/accounts/:id/refunds", charge)
	app.Get("/accounts/:id", guard, func(c fiber.Ctx) error { return c.SendString(c.Params("id")) })
	post("/refused", func(c fiber.Ctx) error {
		s.Ran(c.Context())
		return fiber.NewError(fiber.StatusPaymentRequired, adaptertest.ErrRefused.Error())
	})
	post("/broken", func(c fiber.Ctx) error {
		s.Ran(c.Context())
		return adaptertest.ErrBroken
	})
	post("/panic", func(c fiber.Ctx) error {
		s.Panic(c.Context())
		return nil
	})
	post("/empty", func(c fiber.Ctx) error {
		s.Ran(c.Context())
		c.Status(fiber.StatusNoContent)
		return nil
	})
	post("/stream", func(c fiber.Ctx) error {
		s.Ran(c.Context())
		return c.SendStreamWriter(func(w *bufio.Writer) {
			_, _ = w.WriteString("one ")
			_ = w.Flush()
			_, _ = w.WriteString("two")
		})
	})
	post("/hijack", func(c fiber.Ctx) error {
		s.Ran(c.Context())
		c.RequestCtx().Hijack(func(net.Conn) { t.Error("the handler has taken the connection") })
		return c.SendString("mine")
	})
	post("/commit", func(c fiber.Ctx) error {
		return errors.Join(c.Status(fiber.StatusCreated).SendString("committed"),
			s.InTx(c.Context(), func(tx retrysafe.Tx) error { return fiberkey.CompleteTx(c, tx) }))
	})
	return listen(t, app)
}

// listen serves an app until the test ends.
func listen(t *testing.T, app *fiber.App) (url string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		if err := errors.Join(app.Shutdown(), <-ended); err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

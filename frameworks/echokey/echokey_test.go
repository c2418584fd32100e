package echokey_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/echokey"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/adaptertest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	adaptertest.Run(t, adaptertest.Adapter{Serve: serve, Pattern: "POST /accounts/:id/charges"})
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	adaptertest.BadInput(t, "echokey", func(e *retrysafe.Engine, scope bool, o *httpkey.Options) error {
		of := tenant
		if !scope {
			of = nil
		}
		_, err := echokey.New(e, of, o)
		return err
	})
}

var tenant = func(c *echo.Context) (string, error) {
	text, _ := c.Get("tenant").(string)
	return adaptertest.Tenant(text)
}

func auth(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		c.Set("tenant", c.Request().Header.Get("X-Tenant"))
		c.Response().Header().Set("Deprecation", c.Request().Header.Get("X-Outer"))
		return next(c)
	}
}

// serve is the service on echo, with echo's own recovery outside.
func serve(t *testing.T, s *adaptertest.Service) string {
	t.Helper()
	guard, err := echokey.New(s.Engine, tenant, s.Options)
	if err != nil {
		t.Fatal(err)
	}
	app := echo.New()
	app.Logger = slog.New(slog.DiscardHandler)
	app.Use(middleware.Recover(), auth)
	var onRoute []echo.MiddlewareFunc
	if s.Everywhere {
		app.Use(guard)
	} else {
		onRoute = append(onRoute, guard)
	}
	routes := app.Group("", onRoute...)
	charge := func(c *echo.Context) error {
		body, _ := io.ReadAll(c.Request().Body)
		a := s.Charge(c.Request().Context(), c.Param("id"), body)
		for name, values := range a.Header {
			c.Response().Header()[name] = values
		}
		return c.Blob(a.Status, a.Header.Get("Content-Type"), a.Body)
	}
	routes.POST("/accounts/:id/charges", charge)
	routes.POST("/accounts/:id/refunds", charge)
	routes.GET("/accounts/:id", func(c *echo.Context) error { return c.String(http.StatusOK, c.Param("id")) })
	routes.POST("/refused", func(c *echo.Context) error {
		s.Ran(c.Request().Context())
		return echo.NewHTTPError(http.StatusPaymentRequired, adaptertest.ErrRefused.Error())
	})
	routes.POST("/broken", func(c *echo.Context) error {
		s.Ran(c.Request().Context())
		return adaptertest.ErrBroken
	})
	routes.POST("/panic", func(c *echo.Context) error {
		s.Panic(c.Request().Context())
		return nil
	})
	routes.POST("/empty", func(c *echo.Context) error {
		s.Ran(c.Request().Context())
		return c.NoContent(http.StatusNoContent)
	})
	routes.POST("/stream", func(c *echo.Context) error {
		s.Ran(c.Request().Context())
		fmt.Fprint(c.Response(), "one ")
		err := http.NewResponseController(c.Response()).Flush()
		fmt.Fprint(c.Response(), "two")
		return err
	})
	routes.POST("/hijack", func(c *echo.Context) error {
		s.Ran(c.Request().Context())
		_, _, err := http.NewResponseController(c.Response()).Hijack()
		return c.String(http.StatusOK, fmt.Sprint(err))
	})
	routes.POST("/commit", func(c *echo.Context) error {
		ctx := c.Request().Context()
		return errors.Join(c.String(http.StatusCreated, "committed"),
			s.InTx(ctx, func(tx retrysafe.Tx) error { return httpkey.CompleteTx(ctx, c.Response(), tx) }))
	})
	server := httptest.NewServer(app)
	t.Cleanup(server.Close)
	return server.URL
}

package fiberkey_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/fiberkey"
	"github.com/retrysafe/retrysafe/internal/test/adaptertest"
)

func BenchmarkAdapter(b *testing.B) { adaptertest.Bench(b, build) }

// TestCost prints a table: go test -run=Cost -ratios -v. It asserts nothing.
func TestCost(t *testing.T) { adaptertest.Cost(t, "fiber", build) }

func build(e *retrysafe.Engine) func(string) {
	app := fiber.New()
	receipt := func(c fiber.Ctx) error {
		c.Set("Content-Type", "application/json")
		c.Set("Location", "/payments/pay_0001")
		return c.Status(http.StatusCreated).SendString(adaptertest.Receipt)
	}
	if e == nil {
		app.Post("/payments", receipt)
	} else {
		guard, err := fiberkey.New(e, func(fiber.Ctx) (string, error) { return "tenant", nil }, nil)
		if err != nil {
			panic(err)
		}
		app.Post("/payments", guard, receipt)
	}
	handler := app.Handler()
	var ctx fasthttp.RequestCtx
	ctx.Request.Header.SetMethod(http.MethodPost)
	ctx.Request.SetRequestURI("/payments")
	ctx.Request.Header.SetContentType("application/json")
	ctx.Request.SetBodyString(adaptertest.Payment)
	return func(key string) {
		ctx.Request.Header.Set("Idempotency-Key", key)
		ctx.Response.Reset()
		if handler(&ctx); ctx.Response.StatusCode() != http.StatusCreated {
			panic(fmt.Sprintf("status %d: %s", ctx.Response.StatusCode(), ctx.Response.Body()))
		}
	}
}

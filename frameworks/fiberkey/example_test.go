package fiberkey_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/gofiber/fiber/v3"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/fiberkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func ExampleNew() {
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	auth := func(c fiber.Ctx) error {
		c.Locals("tenant", "acme")
		return c.Next()
	}
	guard, err := fiberkey.New(engine, func(c fiber.Ctx) (string, error) { return fiber.Locals[string](c, "tenant"), nil }, nil)
	if err != nil {
		panic(err)
	}
	app, charges := fiber.New(), 0
	app.Post("/accounts/:id/charges", auth, guard, func(c fiber.Ctx) error {
		charges++
		return c.Status(http.StatusCreated).SendString(fmt.Sprintf("charge %d of account %s", charges, c.Params("id")))
	})

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/accounts/7/charges", nil)
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
		res, err := app.Test(r, fiber.TestConfig{}) // no time limit
		if err != nil {
			panic(err)
		}
		body, _ := io.ReadAll(res.Body)
		fmt.Printf("%q %d %s\n", res.Header.Get("Idempotent-Replayed"), res.StatusCode, body)
	}
	// Output:
	// "" 201 charge 1 of account 7
	// "true" 201 charge 1 of account 7
}

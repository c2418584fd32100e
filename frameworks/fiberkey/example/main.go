// A service on fiber whose charges are safe to retry.
package main

import (
	"crypto/rand"
	"log"

	"github.com/gofiber/fiber/v3"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/fiberkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func main() {
	engine, err := retrysafe.New(memstore.New(nil), nil) // sqlitestore and pgstore outlive the process
	if err != nil {
		log.Fatal(err)
	}
	app, err := routes(engine)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(app.Listen("127.0.0.1:8000"))
}

func routes(engine *retrysafe.Engine) (*fiber.App, error) {
	guard, err := fiberkey.New(engine, tenant, nil)
	if err != nil {
		return nil, err
	}
	app := fiber.New()
	app.Post("/accounts/:id/charges", auth, guard, charge) // on the route, in this order
	return app, nil
}

// auth stands for your authentication.
func auth(c fiber.Ctx) error {
	c.Locals("tenant", "acme")
	return c.Next()
}

func tenant(c fiber.Ctx) (string, error) { return fiber.Locals[string](c, "tenant"), nil }

func charge(c fiber.Ctx) error {
	var in struct{ Amount int }
	if err := c.Bind().JSON(&in); err != nil {
		return err
	}
	if in.Amount <= 0 {
		return fiber.NewError(fiber.StatusBadRequest, "amount is not positive")
	}
	return c.Status(fiber.StatusCreated).JSON(fiber.Map{"id": "pay_" + rand.Text(), "account": c.Params("id"), "amount": in.Amount})
}

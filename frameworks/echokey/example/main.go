// A service on echo whose charges are safe to retry.
package main

import (
	"crypto/rand"
	"log"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/echokey"
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
	log.Fatal(app.Start("127.0.0.1:8000"))
}

func routes(engine *retrysafe.Engine) (*echo.Echo, error) {
	guard, err := echokey.New(engine, tenant, nil)
	if err != nil {
		return nil, err
	}
	app := echo.New()
	app.POST("/accounts/:id/charges", charge, auth, guard) // in this order
	return app, nil
}

// auth stands for your authentication.
func auth(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		c.Set("tenant", "acme")
		return next(c)
	}
}

func tenant(c *echo.Context) (string, error) { return echo.ContextGet[string](c, "tenant") }

func charge(c *echo.Context) error {
	var in struct{ Amount int }
	if err := c.Bind(&in); err != nil {
		return err
	}
	if in.Amount <= 0 {
		return echo.NewHTTPError(http.StatusBadRequest, "amount is not positive")
	}
	return c.JSON(http.StatusCreated, map[string]any{"id": "pay_" + rand.Text(), "account": c.Param("id"), "amount": in.Amount})
}

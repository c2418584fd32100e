package echokey_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/echokey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func ExampleNew() {
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	guard, err := echokey.New(engine, func(c *echo.Context) (string, error) { return echo.ContextGet[string](c, "tenant") }, nil)
	if err != nil {
		panic(err)
	}
	auth := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("tenant", "acme")
			return next(c)
		}
	}
	app := echo.New()
	app.POST("/accounts/:id/charges", func(c *echo.Context) error {
		return echo.NewHTTPError(http.StatusPaymentRequired, "no funds in account "+c.Param("id"))
	}, auth, guard)

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/accounts/7/charges", nil)
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		fmt.Printf("%q %d %s", w.Header().Get("Idempotent-Replayed"), w.Code, w.Body)
	}
	// Output:
	// "" 402 {"message":"no funds in account 7"}
	// "true" 402 {"message":"no funds in account 7"}
}

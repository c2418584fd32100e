package echokey_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/echokey"
	"github.com/retrysafe/retrysafe/internal/test/adaptertest"
)

func BenchmarkAdapter(b *testing.B) { adaptertest.Bench(b, build) }

// TestCost prints a table: go test -run=Cost -ratios -v. It asserts nothing.
func TestCost(t *testing.T) { adaptertest.Cost(t, "echo", build) }

func build(e *retrysafe.Engine) func(string) {
	app := echo.New()
	if e != nil {
		guard, err := echokey.New(e, func(*echo.Context) (string, error) { return "tenant", nil }, nil)
		if err != nil {
			panic(err)
		}
		app.Use(guard)
	}
	receipt := []byte(adaptertest.Receipt)
	app.POST("/payments", func(c *echo.Context) error {
		c.Response().Header().Set("Location", "/payments/pay_0001")
		return c.Blob(http.StatusCreated, "application/json", receipt)
	})
	return adaptertest.Drive(app)
}

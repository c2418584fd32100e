package ginkey_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/ginkey"
	"github.com/retrysafe/retrysafe/internal/test/adaptertest"
)

func BenchmarkAdapter(b *testing.B) { adaptertest.Bench(b, build) }

// TestCost prints a table: go test -run=Cost -ratios -v. It asserts nothing.
func TestCost(t *testing.T) { adaptertest.Cost(t, "gin", build) }

func build(e *retrysafe.Engine) func(string) {
	app := gin.New()
	if e != nil {
		guard, err := ginkey.New(e, func(*gin.Context) (string, error) { return "tenant", nil }, nil)
		if err != nil {
			panic(err)
		}
		app.Use(guard)
	}
	receipt := []byte(adaptertest.Receipt)
	app.POST("/payments", func(c *gin.Context) {
		c.Header("Content-Type", "application/json") // c.Data would set a Content-Length, which the handler on net/http does not
		c.Header("Location", "/payments/pay_0001")
		c.Status(http.StatusCreated)
		_, _ = c.Writer.Write(receipt)
	})
	return adaptertest.Drive(app)
}

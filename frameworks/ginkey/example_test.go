package ginkey_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/ginkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func ExampleNew() {
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	auth := func(c *gin.Context) { c.Set("tenant", "acme") }
	guard, err := ginkey.New(engine, func(c *gin.Context) (string, error) { return c.GetString("tenant"), nil }, nil)
	if err != nil {
		panic(err)
	}
	app, charges := gin.New(), 0
	app.POST("/accounts/:id/charges", auth, guard, func(c *gin.Context) {
		charges++
		c.String(http.StatusCreated, "charge %d of account %s", charges, c.Param("id"))
	})

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/accounts/7/charges", nil)
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		fmt.Printf("%q %d %s\n", w.Header().Get("Idempotent-Replayed"), w.Code, w.Body)
	}
	// Output:
	// "" 201 charge 1 of account 7
	// "true" 201 charge 1 of account 7
}

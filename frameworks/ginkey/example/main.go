// A service on gin whose charges are safe to retry.
package main

import (
	"crypto/rand"
	"log"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/frameworks/ginkey"
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
	log.Fatal(app.Run("127.0.0.1:8000"))
}

func routes(engine *retrysafe.Engine) (*gin.Engine, error) {
	guard, err := ginkey.New(engine, tenant, nil)
	if err != nil {
		return nil, err
	}
	app := gin.Default()
	app.POST("/accounts/:id/charges", auth, guard, renderErrors, charge) // in this order
	return app, nil
}

// auth stands for your authentication.
func auth(c *gin.Context) { c.Set("tenant", "acme") }

func tenant(c *gin.Context) (string, error) { return c.GetString("tenant"), nil }

func charge(c *gin.Context) {
	var in struct {
		Amount int `binding:"gt=0"`
	}
	if err := c.ShouldBindJSON(&in); err != nil {
		_ = c.Error(err)
		return
	}
	c.JSON(http.StatusCreated, gin.H{"id": "pay_" + rand.Text(), "account": c.Param("id"), "amount": in.Amount})
}

func renderErrors(c *gin.Context) {
	if c.Next(); len(c.Errors) > 0 {
		c.JSON(http.StatusBadRequest, gin.H{"error": c.Errors.Last().Error()})
	}
}

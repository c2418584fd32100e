// Gin is a guarded service on gin and gorm with a route of each guarantee class.
package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/examples/web/shop"
	"github.com/retrysafe/retrysafe/frameworks/ginkey"
	"github.com/retrysafe/retrysafe/httpkey"
)

type service struct {
	db       *gorm.DB
	provider shop.Provider
}

// book writes to the store's own database: exactly one effect (class A).
func (s *service) book(ctx context.Context, o shop.Order) (string, error) {
	tx, err := httpkey.Tx[*sql.Tx](ctx)
	if err != nil {
		return "", err
	}
	db, b := s.db.WithContext(ctx), shop.Booking{ID: rand.Text(), Amount: o.Amount}
	db.Statement.ConnPool = tx       // gorm works in the guard's transaction
	return b.ID, db.Create(&b).Error // the booking is committed together with the answer; an error rolls back
}

// charge calls a provider that honours a key: effectively one effect (class B).
func (s *service) charge(ctx context.Context, o shop.Order) (string, error) {
	x, _ := retrysafe.FromContext(ctx)
	return s.provider.Charge(ctx, x.DownstreamKey("charge"), o)
}

// answer answers with what do returns.
func answer(do func(context.Context, shop.Order) (string, error)) gin.HandlerFunc {
	return func(c *gin.Context) {
		var o shop.Order
		if c.ShouldBindJSON(&o) != nil || o.Check() != nil {
			_ = c.Error(shop.ErrAmount)
		} else if id, err := do(c.Request.Context(), o); err != nil {
			_ = c.Error(err)
		} else {
			c.JSON(http.StatusCreated, shop.Receipt{ID: id})
		}
	}
}

// renderErrors stands behind the guard, so that the errors of c.Error are stored as answers.
func renderErrors(c *gin.Context) {
	if c.Next(); len(c.Errors) > 0 {
		c.JSON(shop.Status(c.Errors.Last()), c.Errors.Last())
	}
}

// tenant returns the caller that your authentication has left in the context.
func tenant(*gin.Context) (string, error) { return "acme", nil }

func newHandler(database string, p shop.Provider) http.Handler {
	store, engine := shop.Postgres(database)
	conns := stdlib.OpenDBFromPool(store.Pool())
	s, app := &service{shop.Must(gorm.Open(postgres.New(postgres.Config{Conn: conns}))), p}, gin.New()
	inTx := shop.Must(ginkey.New(engine, tenant, &httpkey.Options{Tx: httpkey.InTx(store.SQL(conns))}))
	keyed := shop.Must(ginkey.New(engine, tenant, &httpkey.Options{Policy: &retrysafe.Policy{Effects: retrysafe.EffectsKeyed}}))
	guard := shop.Must(ginkey.New(engine, tenant, nil))
	app.POST("/bookings", inTx, renderErrors, answer(s.book))
	app.POST("/charges", keyed, renderErrors, answer(s.charge))
	app.POST("/mails", guard, renderErrors, answer(p.Mail)) // anything else: at most one effect, then explained (class C)
	return app
}

func main() { shop.Main(newHandler) }

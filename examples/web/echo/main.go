// Echo is a guarded service on echo and database/sql with a route of each guarantee class.
package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/examples/web/shop"
	"github.com/retrysafe/retrysafe/frameworks/echokey"
	"github.com/retrysafe/retrysafe/httpkey"
)

type service struct{ provider shop.Provider }

// book writes to the store's own database: exactly one effect (class A).
func book(ctx context.Context, o shop.Order) (string, error) {
	tx, err := httpkey.Tx[*sql.Tx](ctx)
	if err != nil {
		return "", err
	}
	id := rand.Text()
	_, err = tx.ExecContext(ctx, `INSERT INTO bookings (id, amount) VALUES (?, ?)`, id, o.Amount)
	return id, err // the booking is committed together with the answer; an error rolls back
}

// charge calls a provider that honours a key: effectively one effect (class B).
func (s *service) charge(ctx context.Context, o shop.Order) (string, error) {
	x, _ := retrysafe.FromContext(ctx)
	return s.provider.Charge(ctx, x.DownstreamKey("charge"), o)
}

// answer answers with what do returns. Echokey has errors rendered behind the guard, so that
// they are stored as answers.
func answer(do func(context.Context, shop.Order) (string, error)) echo.HandlerFunc {
	return func(c *echo.Context) error {
		var o shop.Order
		if c.Bind(&o) != nil || o.Check() != nil {
			return echo.NewHTTPError(http.StatusBadRequest, shop.ErrAmount.Error())
		}
		id, err := do(c.Request().Context(), o)
		if err != nil {
			return err // echo makes it a 500
		}
		return c.JSON(http.StatusCreated, shop.Receipt{ID: id})
	}
}

// tenant returns the caller that your authentication has left in the context.
func tenant(*echo.Context) (string, error) { return "acme", nil }

func newHandler(database string, p shop.Provider) http.Handler {
	store, engine := shop.SQLite(database)
	s, app := &service{p}, echo.New()
	inTx := shop.Must(echokey.New(engine, tenant, &httpkey.Options{Tx: httpkey.InTx(store)}))
	keyed := shop.Must(echokey.New(engine, tenant, &httpkey.Options{Policy: &retrysafe.Policy{Effects: retrysafe.EffectsKeyed}}))
	guard := shop.Must(echokey.New(engine, tenant, nil))
	app.POST("/bookings", answer(book), inTx)
	app.POST("/charges", answer(s.charge), keyed)
	app.POST("/mails", answer(p.Mail), guard) // anything else: at most one effect, then explained (class C)
	return app
}

func main() { shop.Main(newHandler) }

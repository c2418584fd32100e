// Chi is a guarded service on chi and pgx with a route of each guarantee class.
package main

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/examples/web/shop"
	"github.com/retrysafe/retrysafe/httpkey"
)

type service struct{ provider shop.Provider }

// book writes to the store's own database: exactly one effect (class A).
func (s *service) book(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
	return shop.Serve(w, r, func(ctx context.Context, o shop.Order) (string, error) {
		id := rand.Text()
		_, err := tx.Exec(ctx, `INSERT INTO bookings (id, amount) VALUES ($1, $2)`, id, o.Amount)
		return id, err // nil commits the booking together with the answer; an error rolls back
	})
}

// charge calls a provider that honours a key: effectively one effect (class B).
func (s *service) charge(ctx context.Context, o shop.Order) (string, error) {
	x, _ := retrysafe.FromContext(ctx)
	return s.provider.Charge(ctx, x.DownstreamKey("charge"), o)
}

// mail does anything else: at most one effect, then explained (class C).
func (s *service) mail(ctx context.Context, o shop.Order) (string, error) {
	return s.provider.Mail(ctx, o)
}

// tenant returns the caller that your authentication has put into the request's context.
func tenant(*http.Request) (string, error) { return "acme", nil }

// operation returns the pattern of the route, which chi knows behind its router.
func operation(r *http.Request) string {
	return r.Method + " " + chi.RouteContext(r.Context()).RoutePattern()
}

func newHandler(database string, p shop.Provider) http.Handler {
	store, engine := shop.Postgres(database)
	guard := shop.Must(httpkey.New(engine, tenant, &httpkey.Options{Operation: operation}))
	keyed := shop.Must(httpkey.New(engine, tenant, &httpkey.Options{
		Operation: operation,
		Policy:    &retrysafe.Policy{Effects: retrysafe.EffectsKeyed},
	}))
	s, app := &service{p}, chi.NewRouter()
	app.Method(http.MethodPost, "/bookings", shop.Must(httpkey.TxHandler(guard, store, s.book)))
	app.With(keyed.Handler).Post("/charges", shop.Handler(s.charge)) // With, and not Use
	app.With(guard.Handler).Post("/mails", shop.Handler(s.mail))
	return app
}

func main() { shop.Main(newHandler) }

// A service on huma whose charges are safe to retry.
package main

import (
	"context"
	"crypto/rand"
	"log"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
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
	log.Fatal(http.ListenAndServe("127.0.0.1:8000", app))
}

func routes(engine *retrysafe.Engine) (http.Handler, error) {
	guard, err := httpkey.New(engine, tenant, nil)
	if err != nil {
		return nil, err
	}
	app := http.NewServeMux()
	api := humago.New(app, huma.DefaultConfig("Charges", "1.0.0"))
	api.UseMiddleware(auth)
	huma.Register(api, huma.Operation{
		OperationID: "charge", Method: http.MethodPost, Path: "/accounts/{id}/charges", DefaultStatus: http.StatusCreated,
		Middlewares: huma.Middlewares{guarded(guard)}, // of the operation, and not around the mux
	}, charge)
	return app, nil
}

// guarded runs an operation behind the guard, where huma renders its errors too.
func guarded(guard *httpkey.Guard) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next(humago.NewContext(ctx.Operation(), r, w))
		})).ServeHTTP(w, r.WithContext(ctx.Context()))
	}
}

type tenantKey struct{}

// auth stands for your authentication.
func auth(ctx huma.Context, next func(huma.Context)) { next(huma.WithValue(ctx, tenantKey{}, "acme")) }

func tenant(r *http.Request) (string, error) { return r.Context().Value(tenantKey{}).(string), nil }

type input struct {
	ID   string `path:"id"`
	Body struct {
		Amount int `json:"amount"`
	}
}

type output struct {
	Body struct {
		ID string `json:"id"`
	}
}

func charge(_ context.Context, in *input) (*output, error) {
	if in.Body.Amount <= 0 {
		return nil, huma.Error400BadRequest("amount is not positive")
	}
	out := new(output)
	out.Body.ID = "pay_" + rand.Text()
	return out, nil
}

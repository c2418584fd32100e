// A service on oapi-codegen's strict server whose charges are safe to retry. It generates
// the rest of the program from api.yaml.
package main

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -generate=std-http-server,strict-server,models -package=main -o=api.gen.go api.yaml

import (
	"context"
	"crypto/rand"
	"errors"
	"log"
	"net/http"

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
	strict := NewStrictHandlerWithOptions(api{}, nil, StrictHTTPServerOptions{ResponseErrorHandlerFunc: renderError})
	return HandlerWithOptions(strict, StdHTTPServerOptions{
		Middlewares: []MiddlewareFunc{guard.Handler, auth}, // the last one runs first
	}), nil
}

type tenantKey struct{}

// auth stands for your authentication.
func auth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, "acme")))
	})
}

func tenant(r *http.Request) (string, error) { return r.Context().Value(tenantKey{}).(string), nil }

type api struct{}

var errAmount = errors.New("amount is not positive")

func (api) Charge(_ context.Context, in ChargeRequestObject) (ChargeResponseObject, error) {
	if in.Body.Amount <= 0 {
		return nil, errAmount
	}
	return Charge201JSONResponse{Id: "pay_" + rand.Text()}, nil
}

// renderError runs behind the guard, so that the error is the answer that is stored.
func renderError(w http.ResponseWriter, _ *http.Request, err error) {
	status := http.StatusInternalServerError
	if errors.Is(err, errAmount) {
		status = http.StatusBadRequest
	}
	http.Error(w, err.Error(), status)
}

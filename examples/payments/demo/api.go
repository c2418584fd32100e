package demo

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

// api is the payment API.
type api struct {
	db   *database
	bank *bank
	wake func() // wakes the worker for a new message
}

// handlers returns the API for people, and the same for the traffic, whose guards log
// nothing.
func (a *api) handlers(engine *retrysafe.Engine, profile *httpkey.Profile, logger *slog.Logger) (http.Handler, error) {
	people, err := a.handler(engine, profile, logger)
	if err != nil {
		return nil, err
	}
	traffic, err := a.handler(engine, profile, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return authenticate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tenant, _ := tenantOf(r); tenant == trafficTenant {
			traffic.ServeHTTP(w, r)
			return
		}
		people.ServeHTTP(w, r)
	})), nil
}

// handler returns the API. Each route declares its effects, and so what may run again.
func (a *api) handler(engine *retrysafe.Engine, profile *httpkey.Profile, logger *slog.Logger) (http.Handler, error) {
	mux := http.NewServeMux()
	for _, route := range []struct {
		operation string
		policy    retrysafe.Policy
		handle    http.HandlerFunc
	}{
		{"POST /payments", retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun}, a.pay},
		{"POST /transfers", retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun, InFlight: retrysafe.InFlightAccept}, a.transfer},
		{"POST /charges", retrysafe.Policy{Effects: retrysafe.EffectsUnprotected, Reconcile: askEvery}, a.charge},
	} {
		route.policy.Lease = lease
		guard, err := httpkey.New(engine, tenantOf, &httpkey.Options{
			Profile: profile, Policy: &route.policy, StatusURL: statusURL, Logger: logger,
			Reconciled: route.policy.Effects == retrysafe.EffectsUnprotected, // the janitor asks the provider's ledger
		})
		if err != nil {
			return nil, err
		}
		mux.Handle(route.operation, guard.Handler(route.handle))
		if route.policy.InFlight == retrysafe.InFlightAccept {
			mux.Handle("GET /transfers/status", keyFromQuery(guard.Status(route.operation)))
		}
	}
	for _, kind := range kinds {
		mux.HandleFunc("GET /"+kind+"s/{id}", a.show(kind))
	}
	mux.HandleFunc("GET /ledger", a.ledger)
	return mux, nil
}

// statusURL is where a client asks for an outcome that is not there yet.
func statusURL(_ *http.Request, key string) string {
	return "/transfers/status?key=" + url.QueryEscape(key)
}

func keyFromQuery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.SetPathValue("key", r.FormValue("key"))
		next.ServeHTTP(w, r)
	})
}

// show returns one effect of the caller's.
func (a *api) show(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		tenant, _ := tenantOf(r)
		found, err := a.db.find(r.Context(), tenant, kind, r.PathValue("id"))
		switch {
		case errors.Is(err, errNotFound):
			reply(w, http.StatusNotFound, problem{"no such " + kind})
		case err != nil:
			unavailable(w)
		default:
			reply(w, http.StatusOK, found)
		}
	}
}

// ledger lists what was done under one of the caller's keys.
func (a *api) ledger(w http.ResponseWriter, r *http.Request) {
	tenant, _ := tenantOf(r)
	key := r.FormValue("key")
	if key == "" {
		reply(w, http.StatusBadRequest, problem{"say which: /ledger?key=K"})
		return
	}
	found, err := a.db.ledger(r.Context(), retrysafe.Ref{Scope: tenant, Key: key})
	if err != nil {
		unavailable(w)
		return
	}
	reply(w, http.StatusOK, found)
}

// unavailable answers that nothing was done.
func unavailable(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	reply(w, http.StatusServiceUnavailable, problem{"the database does not answer; nothing was done, so send it again"})
}

// execution returns the execution under which a guarded handler runs.
func execution(ctx context.Context, w http.ResponseWriter) (*retrysafe.Execution, bool) {
	x, ok := retrysafe.FromContext(ctx)
	if !ok {
		reply(w, http.StatusInternalServerError, problem{"this route is not guarded"})
	}
	return x, ok
}

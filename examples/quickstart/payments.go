package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/retrysafe/retrysafe"
)

// payments is an ordinary API with a ledger in memory. It does not handle repeated
// requests; it only stores the tenant and the key of each charge.
type payments struct {
	mu   sync.Mutex
	rows []row // the ledger: one row for each charge that really happened
}

// row is one charge, with the tenant and the key that it was made under.
type row struct {
	under retrysafe.Ref
	payment
}

type payment struct {
	ID       string `json:"id"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// create charges a payment.
func (p *payments) create(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
	}
	body := json.NewDecoder(r.Body)
	body.DisallowUnknownFields()
	if err := body.Decode(&in); err != nil || in.Amount <= 0 || len(in.Currency) != 3 {
		reply(w, http.StatusBadRequest, problem{`send {"amount": 1200, "currency": "EUR"}, the amount in cents`})
		return
	}
	execution, ok := retrysafe.FromContext(r.Context())
	if !ok {
		reply(w, http.StatusInternalServerError, problem{"this route is not guarded"})
		return
	}
	made := p.charge(execution.Ref(), in.Amount, in.Currency)
	w.Header().Set("Location", "/payments/"+made.ID)
	reply(w, http.StatusCreated, made)
}

// charge stands for the effect that must not happen twice. A charge that calls a
// provider would send execution.DownstreamKey("charge") along, which is the same on
// every attempt, and declare the route's effects as keyed.
func (p *payments) charge(under retrysafe.Ref, amount int64, currency string) payment {
	p.mu.Lock()
	defer p.mu.Unlock()
	made := payment{fmt.Sprintf("pay_%d", len(p.rows)+1), amount, currency}
	p.rows = append(p.rows, row{under, made})
	return made
}

// show returns one payment of the caller's.
func (p *payments) show(w http.ResponseWriter, r *http.Request) {
	tenant, _ := tenantOf(r)
	found := p.find(func(at row) bool { return at.under.Scope == tenant && at.ID == r.PathValue("id") })
	if len(found) == 0 {
		reply(w, http.StatusNotFound, problem{"no such payment"})
		return
	}
	reply(w, http.StatusOK, found[0])
}

// ledger lists what was really charged under one of the caller's keys.
func (p *payments) ledger(w http.ResponseWriter, r *http.Request) {
	tenant, _ := tenantOf(r)
	ref := retrysafe.Ref{Scope: tenant, Key: r.FormValue("key")}
	reply(w, http.StatusOK, p.find(func(at row) bool { return at.under == ref }))
}

func (p *payments) find(match func(row) bool) []payment {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := []payment{}
	for _, at := range p.rows {
		if match(at) {
			found = append(found, at.payment)
		}
	}
	return found
}

type problem struct {
	Error string `json:"error"`
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone asks again
}

// tenants maps tokens to callers. In a real service the identity provider does that.
var tenants = map[string]string{"demo-a": "tenant-a", "demo-b": "tenant-b"}

type tenantKey struct{}

// authenticate identifies the caller before anything else is done.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		tenant, known := tenants[token]
		if !bearer || !known {
			w.Header().Set("WWW-Authenticate", "Bearer")
			reply(w, http.StatusUnauthorized, problem{"send Authorization: Bearer demo-a, or demo-b"})
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, tenant)))
	})
}

// tenantOf returns the tenant that owns the key of a request: the authenticated
// caller's.
func tenantOf(r *http.Request) (string, error) {
	tenant, ok := r.Context().Value(tenantKey{}).(string)
	if !ok {
		return "", errors.New("the caller is not authenticated")
	}
	return tenant, nil
}

package field

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
)

// Handlers here do not stop when their context ends: a promise must not rest on a
// handler that listens.

// A report is the answer to a job. No two attempts give the same one.
type report struct {
	Job     string `json:"job"`
	By      string `json:"by"`
	Receipt string `json:"receipt,omitempty"` // the provider's
}

func (a report) result() retrysafe.Result {
	body, _ := json.Marshal(a) // strings always marshal
	return retrysafe.Result{
		Status: http.StatusCreated, Body: append(body, '\n'),
		Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/effects/" + url.PathEscape(a.By)}},
	}
}

func (a report) write(w http.ResponseWriter) { write(w, a.result()) }

func write(w http.ResponseWriter, r retrysafe.Result) {
	for name, values := range r.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Body) // a client that has gone asks again
}

// signature names one attempt of this node.
func (n *node) signature(attempt any) string {
	return fmt.Sprintf("%s, %v, %s", n.Name, attempt, rand.Text()[:8])
}

// attempt says which job a request is for and signs the attempt at it.
func (n *node) attempt(r *http.Request, m effect.Mode) (a report) {
	a.Job = jobID(tenantOf(r), m, r.Header.Get("Idempotency-Key"))
	number := 0
	if x, ok := retrysafe.FromContext(r.Context()); ok {
		number = x.Attempt()
	}
	a.By = n.signature(fmt.Sprint("attempt ", number))
	return a
}

func (n *node) inTx(w http.ResponseWriter, r *http.Request) {
	ctx, a := context.WithoutCancel(r.Context()), n.attempt(r, effect.InTx)
	n.hold(ctx, r, a, before)
	tx, err := n.booked(ctx, a)
	if err != nil {
		if x, ok := retrysafe.FromContext(ctx); ok {
			_ = x.Release(ctx, err) // no commit was sent; the guard reports it if it fails
		}
		http.Error(w, "the effect could not be booked", http.StatusServiceUnavailable)
		return
	}
	a.write(w)
	if n.complete(ctx, w, tx) != nil {
		return // it is rolled back, and the guard says so
	}
	n.hold(ctx, r, a, within)
	_ = tx.Commit(ctx) // the guard finds out by itself whether it took place
	n.hold(ctx, r, a, after)
}

// booked returns a transaction that has an effect. A database that is too busy for it is
// asked again for as long as the store is: nothing has happened yet.
func (n *node) booked(ctx context.Context, a report) (retrysafe.Tx, error) {
	for began := time.Now(); ; {
		tx, book, err := n.db.TxStore().BeginTx(ctx)
		if err == nil {
			if err = book(ctx, a.Job, a.By); err == nil {
				return tx, nil
			}
			_ = tx.Rollback(ctx)
		}
		if time.Since(began) >= n.StoreTimeout {
			return nil, err
		}
	}
}

func (n *node) oneCommit(w http.ResponseWriter, r *http.Request, e *retrysafe.Engine) {
	scope, _ := n.scope(r)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	call := retrysafe.Call{
		Ref:         retrysafe.Ref{Scope: scope, Key: r.Header.Get("Idempotency-Key")},
		Operation:   r.Pattern,
		Fingerprint: retrysafe.Fingerprint{Alg: 1, Sum: sha256.Sum256(body)},
	}
	out, err := retrysafe.DoTx(r.Context(), e, n.db.TxStore(), call, func(ctx context.Context, book sandbox.AddEffect) (retrysafe.Result, error) {
		ctx, a := context.WithoutCancel(ctx), n.attempt(r, effect.OneCommit)
		if err := book(ctx, a.Job, a.By); err != nil {
			return retrysafe.Result{}, err
		}
		n.hold(ctx, r, a, within)
		return a.result(), nil
	})
	if err != nil {
		refuse(w, err)
		return
	}
	write(w, out.Result)
}

// refuse says why there is no answer, in as much of a guard's words as the client
// understands.
func refuse(w http.ResponseWriter, err error) {
	status, code := http.StatusServiceUnavailable, ""
	switch {
	case errors.Is(err, retrysafe.ErrInFlight):
		status, code = http.StatusConflict, codeInFlight
	case errors.Is(err, retrysafe.ErrUnknown):
		status, code = http.StatusConflict, codeUnknown
	case errors.Is(err, retrysafe.ErrMismatch):
		status = http.StatusUnprocessableEntity
	}
	body, _ := json.Marshal(problem{Code: code, Title: err.Error()}) // strings always marshal
	write(w, retrysafe.Result{Status: status, Body: body})
}

func (n *node) keyed(w http.ResponseWriter, r *http.Request) {
	key := ""
	if x, ok := retrysafe.FromContext(r.Context()); ok {
		key = n.downstream(x)
	}
	n.charge(w, r, n.attempt(r, effect.Keyed), key)
}

func (n *node) unprotected(w http.ResponseWriter, r *http.Request) {
	n.charge(w, r, n.attempt(r, effect.Unprotected), "")
}

// charge has the provider do it.
func (n *node) charge(w http.ResponseWriter, r *http.Request, a report, key string) {
	ctx := context.WithoutCancel(r.Context())
	n.hold(ctx, r, a, before)
	body, err := io.ReadAll(r.Body)
	if err == nil {
		a.Receipt, err = n.order(ctx, effect.Order{Job: a.Job, Key: key, Request: string(body), By: a.By})
	}
	if err != nil {
		http.Error(w, "the provider did not answer", http.StatusBadGateway)
		return
	}
	n.hold(ctx, r, a, after)
	a.write(w)
}

// hold waits for the parent at the point where it has asked for that.
func (n *node) hold(ctx context.Context, r *http.Request, a report, at point) {
	if r.Header.Get(holdHeader) == string(at) {
		_ = n.provider.Hold(ctx, a.Job) // without the parent there is no judgement
	}
}

// order sends an order to the provider, and waits as long as the node's patience lasts.
func (n *node) order(ctx context.Context, o effect.Order) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, n.Patience)
	defer cancel()
	return n.provider.Charge(ctx, o)
}

// lookUp returns the provider's receipt for a job, or nothing.
func (n *node) lookUp(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, n.Patience)
	defer cancel()
	return n.provider.Find(ctx, id)
}

package field

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
	"github.com/retrysafe/retrysafe/httpkey"
)

func init() {
	flaws = map[string]func(*node){
		"without a store":            withoutStore,
		"fails open":                 failsOpen,
		"knows no tenants":           knowsNoTenants,
		"repeats the unprotected":    repeatsTheUnprotected,
		"a key per attempt":          keyPerAttempt,
		"effect and answer apart":    effectApart,
		"swaps without a look":       func(n *node) { n.store = uncompared{n.store} },
		"waits by its first look":    func(n *node) { n.store = &firstLook{Store: n.store} },
		"answers before it is saved": answersFirst,
	}
}

// withoutStore is no flaw: one of the nodes has lost its store, and says so.
func withoutStore(n *node) {
	if n.Name == "node 2" {
		n.store = away{n.store}
	}
}

// failsOpen runs what could not be reserved.
func failsOpen(n *node) {
	withoutStore(n)
	n.guarded = func(_ effect.Mode, g *httpkey.Guard, next http.Handler) http.Handler {
		h := g.Handler(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got := httptest.NewRecorder()
			if h.ServeHTTP(got, r); got.Code == http.StatusServiceUnavailable {
				next.ServeHTTP(w, r)
				return
			}
			write(w, recorded(got))
		})
	}
}

func recorded(got *httptest.ResponseRecorder) retrysafe.Result {
	return retrysafe.Result{Status: got.Code, Header: got.Header(), Body: got.Body.Bytes()}
}

func knowsNoTenants(n *node) {
	n.scope = func(*http.Request) (string, error) { return "everybody", nil }
}

func repeatsTheUnprotected(n *node) { n.policies[effect.Unprotected] = n.policies[effect.Keyed] }

func keyPerAttempt(n *node) {
	n.downstream = func(x *retrysafe.Execution) string { return x.Record().Owner.String() }
}

// effectApart commits the effect, and leaves the answer to the guard.
func effectApart(n *node) {
	n.complete = func(context.Context, http.ResponseWriter, retrysafe.Tx) error { return nil }
}

// answersFirst stores answers when it has the time: so late that a kill meets some of
// them however slowly clients ask. Until then its heartbeat keeps the lease.
func answersFirst(n *node) {
	n.guarded = func(m effect.Mode, _ *httpkey.Guard, next http.Handler) http.Handler {
		e, err := retrysafe.New(n.store, &retrysafe.Options{Policy: n.policies[m]})
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err != nil {
				refuse(w, err)
				return
			}
			x, out, err := e.Begin(r.Context(), retrysafe.Call{Ref: retrysafe.Ref{Scope: tenantOf(r), Key: r.Header.Get("Idempotency-Key")}, Operation: r.Pattern})
			switch {
			case err != nil:
				refuse(w, err)
				return
			case out != nil:
				write(w, out.Result)
				return
			}
			got := httptest.NewRecorder()
			if next.ServeHTTP(got, r.WithContext(x.Context())); got.Code >= 500 {
				_ = x.Fail(r.Context(), errors.New("it failed"))
				write(w, recorded(got))
				return
			}
			write(w, recorded(got))
			time.AfterFunc(4*killLease, func() { _ = x.Complete(context.Background(), recorded(got)) })
		})
	}
}

// away is a store that cannot be reached.
type away struct{ retrysafe.Store }

func (away) Create(context.Context, retrysafe.Write) (retrysafe.Record, error) {
	return retrysafe.Record{}, errors.New("the store is away")
}

// firstLook is a store that loads each record once: a call that waits never sees what
// another node has stored.
type firstLook struct {
	retrysafe.Store
	seen sync.Map
}

func (l *firstLook) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if seen, ok := l.seen.Load(ref); ok {
		return seen.(retrysafe.Record), nil
	}
	got, err := l.Store.Load(ctx, ref)
	if err == nil {
		l.seen.Store(ref, got)
	}
	return got, err
}

// uncompared is a store that stores answers of keyed records without comparing owners,
// and confirms the lease of every owner.
type uncompared struct{ retrysafe.Store }

func (u uncompared) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	stored, err := u.Store.Swap(ctx, w)
	if !errors.Is(err, retrysafe.ErrConflict) || w.Effects != retrysafe.EffectsKeyed || w.Overwrite {
		return stored, err
	}
	if w.State != retrysafe.StateCompleted {
		w.Revision = w.Expect.Revision
		return w.Record, nil
	}
	w.Expect = stored.Fence()
	return u.Store.Swap(ctx, w)
}

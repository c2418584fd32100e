package demo

import (
	"net/http"

	"github.com/retrysafe/retrysafe/httpkey"
)

// pay is all in our own database: the row and the answer that tells of it are one
// commit. Exactly once.
func (a *api) pay(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	in, ok := read(w, r)
	if !ok {
		return
	}
	x, ok := execution(ctx, w)
	if !ok {
		return
	}
	tx, err := a.db.begin(ctx)
	if err != nil {
		unavailable(w)
		return
	}
	defer func() { _ = tx.Rollback(ctx) }()
	made := effect{ID: newID("pay"), Kind: payment, order: in, Status: succeeded}
	if err := insert(ctx, tx, x.Ref(), &made); err != nil {
		unavailable(w)
		return
	}
	send(w, made.created())
	if err := httpkey.CompleteTx(ctx, w, tx); err != nil {
		return // it is rolled back, and the client is told so
	}
	_ = tx.Commit(ctx) // the guard finds out by itself whether it took place
}

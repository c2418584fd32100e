package demo

import (
	"net/http"

	"github.com/retrysafe/retrysafe/httpkey"
)

// pay writes only to our own database: the row and the answer are one commit. Exactly
// once.
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
		return // the transaction was rolled back, and the guard answers
	}
	_ = tx.Commit(ctx) // the guard finds out whether it was committed
}

package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
)

// charge calls the provider in line and without a key, as if it knew none. It is never
// called twice: if the answer is lost the outcome is unknown, a retry is told so, and
// the janitor asks the provider. At most once, and then explained.
func (a *api) charge(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	in, ok := read(w, r)
	if !ok {
		return
	}
	x, ok := execution(ctx, w)
	if !ok {
		return
	}
	// Effect stores the call before it is made, so that after a crash in between the
	// outcome is known to be unknown.
	made, err := retrysafe.Effect(ctx, "charge", in.toProvider(x.Ref()), func(ctx context.Context, at retrysafe.Attempt) (charged, error) {
		made, err := a.bank.charge(ctx, at.Request)
		at.Provider(made.ID)
		return made, err
	})
	switch {
	case retrysafe.IsNotExecuted(err):
		_ = x.Release(ctx, err) // nothing was sent; if the release is not stored, the outcome is unknown, which
		// is safe
		reply(w, http.StatusServiceUnavailable, problem{"the provider cannot be reached; nothing was charged, so send it again"})
		return
	case err != nil:
		reply(w, http.StatusBadGateway, problem{"the provider's answer was lost, so it may have charged or not; the outcome is being determined: ask again with the same key"})
		return
	case made.ID == "":
		reply(w, http.StatusPaymentRequired, problem{"the provider has declined"})
		return
	}
	row, err := a.charged(ctx, x.Ref(), &made)
	if err != nil {
		reply(w, http.StatusInternalServerError, problem{"the charge was made, but is not stored yet; ask again with the same key"})
		return
	}
	send(w, row.created())
}

// charged stores a charge that has happened. Both the request and the janitor may call
// it for the same charge.
func (a *api) charged(ctx context.Context, under retrysafe.Ref, made *charged) (*effect, error) {
	row := &effect{ID: made.ID, Kind: charge, order: made.order, Status: succeeded, Charge: made.ID}
	return row, insertOnce(ctx, a.db, under, row)
}

// resolveCharge finds out what became of a charge whose answer was lost. If the
// provider's ledger has no such charge, that proves little: the call may still be on
// its way. Then the outcome stays unknown, and in the end an operator decides.
func (a *api) resolveCharge(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
	found, err := a.bank.ledger(ctx, r.Ref)
	switch {
	case err != nil:
		return retrysafe.Evidence{}, err
	case len(found) == 0:
		return janitor.NotHappened("the provider's ledger has no such reference"), nil
	case len(found) > 1:
		return janitor.StillUnknown(fmt.Sprintf("the provider's ledger has %d charges with this reference", len(found))), nil
	case found[0].Merchant != r.Scope || found[0].Reference != r.Key:
		return retrysafe.Evidence{}, errors.New("the provider's ledger returned another merchant's charge")
	}
	row, err := a.charged(ctx, r.Ref, &found[0])
	if err != nil {
		return retrysafe.Evidence{}, err
	}
	verdict := janitor.Happened(row.created(), "it is in the provider's ledger")
	verdict.ProviderRef = row.Charge
	return verdict, nil
}

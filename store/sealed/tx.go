package sealed

import (
	"context"
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

var (
	_ retrysafe.Tx    = (*tx)(nil)
	_ retrysafe.Taker = (*tx)(nil)
)

// tx seals what it sends to a transaction of the store below.
type tx struct {
	retrysafe.Tx // Rollback is that of the transaction below
	keys         *Keyring
	poison       error // why it cannot commit
}

// Tx returns below with its records sealed, for a store that [New] seals with
// the same secrets. A transaction that is not sealed would not find its keys.
func (k *Keyring) Tx(below retrysafe.Tx) retrysafe.Tx { return &tx{Tx: below, keys: k} }

func (t *tx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if _, ok := t.keys.parseHandle(ref); ok {
		return retrysafe.Record{}, errHandle
	}
	got, err := t.Tx.Reserve(ctx, t.keys.lower(ref))
	return t.keys.raise(&got, err, ref, nil)
}

// Take implements [retrysafe.Taker]. Over a transaction that is none it is Reserve.
func (t *tx) Take(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	below, ok := t.Tx.(retrysafe.Taker)
	if _, isHandle := t.keys.parseHandle(ref); isHandle || !ok {
		return t.Reserve(ctx, ref)
	}
	got, err := below.Take(ctx, t.keys.lower(ref))
	return t.keys.raise(&got, err, ref, nil)
}

func (t *tx) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	got, err := t.keys.create(ctx, t.Tx, &w)
	return got, t.note(err)
}

func (t *tx) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if _, ok := t.keys.parseHandle(w.Ref); ok {
		return retrysafe.Record{}, t.note(errHandle)
	}
	got, err := t.keys.swap(ctx, t.Tx, &w)
	return got, t.note(err)
}

// note records that a step could not be read back. The transaction below has applied
// the step, so it would commit a step that has failed for its caller.
func (t *tx) note(err error) error {
	if t.poison == nil && errors.Is(err, retrysafe.ErrUnreadable) {
		t.poison = err
	}
	return err
}

// Commit rolls back instead if a step of the transaction could not be read back.
func (t *tx) Commit(ctx context.Context) error {
	if t.poison == nil {
		return t.Tx.Commit(ctx)
	}
	err := fmt.Errorf("commit: rolled back, because an earlier step was refused: %w", t.poison)
	return errors.Join(err, t.Tx.Rollback(context.WithoutCancel(ctx)))
}

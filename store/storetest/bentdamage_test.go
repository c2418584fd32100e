package storetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe"
)

// damage makes a record unreadable by every step of the bent store.
func (b *bent) damage(ref retrysafe.Ref) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.damaged[ref] = true
	return nil
}

func (b *bent) isDamaged(ref retrysafe.Ref) bool {
	b.mu.Lock()
	marked := b.damaged[ref]
	b.mu.Unlock()
	if !marked {
		return false
	}
	_, err := b.Store.Load(context.Background(), ref)
	return !errors.Is(err, retrysafe.ErrNotFound) // it may have been purged
}

// readable returns what a step gets from a damaged record, and nil for any other.
func (b *bent) readable(step string, ref retrysafe.Ref) error {
	if !b.isDamaged(ref) {
		return nil
	}
	return b.unreadable(step)
}

// showDamaged returns what List shows of the records.
func (b *bent) showDamaged(list []retrysafe.Record) []retrysafe.Record {
	shown := slices.Clone(list[:0])
	for _, r := range list {
		ok := true
		if b.isDamaged(r.Ref) {
			r, ok = b.show(r)
		}
		if ok {
			shown = append(shown, r)
		}
	}
	return shown
}

// The Ref of a damaged record has its scope and its key in the key.
const damagedScope = "\x00damaged"

func damagedRef(ref retrysafe.Ref) retrysafe.Ref {
	return retrysafe.Ref{Scope: damagedScope, Key: ref.Scope + "\x00" + ref.Key}
}

func wholeRef(ref retrysafe.Ref) retrysafe.Ref {
	if ref.Scope != damagedScope {
		return ref
	}
	scope, key, _ := strings.Cut(ref.Key, "\x00")
	return retrysafe.Ref{Scope: scope, Key: key}
}

// A damagedTx is a transaction that meets damaged records.
type damagedTx struct {
	retrysafe.Tx
	b *bent
}

func (t *damagedTx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if err := t.b.readable("reserve", ref); err != nil {
		return retrysafe.Record{}, err
	}
	return t.Tx.Reserve(ctx, ref)
}

func (t *damagedTx) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.write(ctx, "create in a transaction", w, t.Tx.Create)
}

func (t *damagedTx) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return t.write(ctx, "swap in a transaction", w, t.Tx.Swap)
}

func (t *damagedTx) write(ctx context.Context, step string, w retrysafe.Write, do func(context.Context, retrysafe.Write) (retrysafe.Record, error)) (retrysafe.Record, error) {
	err := t.b.readable(step, w.Ref)
	switch {
	case errors.Is(err, errNotPoisoned):
		return retrysafe.Record{}, err
	case err != nil:
		return retrysafe.Record{}, errors.Join(err, t.Tx.Rollback(ctx))
	}
	return do(ctx, w)
}

// errNotPoisoned is what a step gets that lets its transaction go on.
var errNotPoisoned = errors.Join(retrysafe.ErrUnreadable, errors.New("and the transaction goes on"))

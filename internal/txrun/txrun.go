// Package txrun runs handlers in transactions of a store whose type they know and their
// guard does not. The transaction is in the handler's context.
package txrun

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Runner runs handlers in transactions. [In] returns one.
type Runner interface {
	// DoTx runs fn by [retrysafe.DoTx].
	DoTx(ctx context.Context, e *retrysafe.Engine, c retrysafe.Call, fn func(context.Context) (retrysafe.Result, error)) (retrysafe.Outcome, error)
	// PlainTx runs fn in a transaction without a key. An error of fn rolls back.
	PlainTx(ctx context.Context, fn func(context.Context) error) error
	// Valid reports whether there is a store.
	Valid() bool
}

// In returns a runner for transactions of the store.
func In[T any](s retrysafe.TxStore[T]) Runner { return runner[T]{s} }

// Tx returns the transaction of a handler's context, if there is one of this type.
func Tx[T any](ctx context.Context) (tx T, ok bool) {
	tx, ok = ctx.Value(key[T]{}).(T)
	return tx, ok
}

type key[T any] struct{}

type runner[T any] struct{ store retrysafe.TxStore[T] }

// Valid also sees a nil pointer in the interface, as an ignored error leaves it.
func (r runner[T]) Valid() bool {
	v := reflect.ValueOf(r.store)
	return v.IsValid() && (v.Kind() != reflect.Pointer || !v.IsNil())
}

func (r runner[T]) DoTx(ctx context.Context, e *retrysafe.Engine, c retrysafe.Call, fn func(context.Context) (retrysafe.Result, error)) (retrysafe.Outcome, error) {
	return retrysafe.DoTx(ctx, e, r.store, c, func(ctx context.Context, tx T) (retrysafe.Result, error) {
		return fn(context.WithValue(ctx, key[T]{}, tx))
	})
}

func (r runner[T]) PlainTx(ctx context.Context, fn func(context.Context) error) error {
	tx, own, err := r.store.BeginTx(ctx)
	if err != nil {
		return &retrysafe.RefusedError{Err: fmt.Errorf("%w: %w", retrysafe.ErrUnavailable, err), RetryAfter: time.Second}
	}
	committed := false
	defer func() { // also if fn panics or ends its goroutine
		if !committed {
			_ = tx.Rollback(context.WithoutCancel(ctx))
		}
	}()
	if err := fn(context.WithValue(ctx, key[T]{}, own)); err != nil {
		return err
	}
	if err := tx.Commit(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	committed = true
	return nil
}

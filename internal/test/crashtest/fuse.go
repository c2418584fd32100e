// Package crashtest crashes clients of a store, for the stores' own tests. A child
// process books a ride in phases and is killed, with no warning, before and after each
// step that it sends to the database. A fleet of processes is upgraded while it works.
// The parent then opens the same database, retries until each key is final, and counts
// effects. The tests that hold for every store are in prove/sweep.
package crashtest

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Lease is how long the lease of a killed attempt lasts.
const Lease = 200 * time.Millisecond

// patience is a timeout for a busy machine: nothing that works takes as long. No store
// timeout is shorter, so a program that was stopped for a while goes on with what it
// began.
const patience = time.Minute

// A Fuse kills the process when it is passed for the n-th time, by any goroutine: a
// heartbeat passes it too.
type Fuse struct {
	mu   sync.Mutex
	left int
}

// Pass is called before and after each step that may be the last.
func (f *Fuse) Pass() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left--; f.left == 0 {
		die()
	}
}

// die kills the process with no warning.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func around[T any](f *Fuse, do func() (T, error)) (T, error) {
	f.Pass()
	defer f.Pass()
	return do()
}

// mined is a store with a fuse before and after each step.
type mined struct {
	retrysafe.Store
	fuse *Fuse
}

func (m mined) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return around(m.fuse, func() (retrysafe.Record, error) { return m.Store.Create(ctx, w) })
}

func (m mined) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return around(m.fuse, func() (retrysafe.Record, error) { return m.Store.Swap(ctx, w) })
}

// minedTxStore begins transactions with a fuse before and after each step.
type minedTxStore[T any] struct {
	retrysafe.TxStore[T]
	fuse *Fuse
}

func (m minedTxStore[T]) BeginTx(ctx context.Context) (retrysafe.Tx, T, error) {
	tx, own, err := m.TxStore.BeginTx(ctx)
	if err != nil {
		return nil, own, err
	}
	if f, ok := tx.(retrysafe.CreateCommitter); ok {
		return minedFinisher{minedTx{tx, m.fuse}, f}, own, nil
	}
	return minedTx{tx, m.fuse}, own, nil
}

type minedTx struct {
	retrysafe.Tx
	fuse *Fuse
}

func (m minedTx) Reserve(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	return around(m.fuse, func() (retrysafe.Record, error) { return m.Tx.Reserve(ctx, ref) })
}

func (m minedTx) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return around(m.fuse, func() (retrysafe.Record, error) { return m.Tx.Create(ctx, w) })
}

func (m minedTx) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return around(m.fuse, func() (retrysafe.Record, error) { return m.Tx.Swap(ctx, w) })
}

func (m minedTx) Commit(ctx context.Context) error {
	m.fuse.Pass()
	defer m.fuse.Pass()
	return m.Tx.Commit(ctx)
}

// minedFinisher is the transaction of a store that creates and commits in one step.
type minedFinisher struct {
	minedTx
	f retrysafe.CreateCommitter
}

func (m minedFinisher) CreateAndCommit(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return around(m.fuse, func() (retrysafe.Record, error) { return m.f.CreateAndCommit(ctx, w) })
}

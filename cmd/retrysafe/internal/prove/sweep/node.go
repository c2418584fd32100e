package sweep

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/outbox"
)

// A rig is what the checks work with. Tests have bent ones.
type rig struct {
	role      string // of its children
	scenarios []scenario
	// every, if not zero, is at every how many steps it looks, but for releases.
	every int
	// bend, if not nil, stands between engine and store.
	bend func(retrysafe.Store) retrysafe.Store
}

// A provider is an [effect.Provider], in this process or another.
type provider interface {
	Charge(ctx context.Context, o effect.Order) (id string, err error)
	Find(ctx context.Context, job string) (id string, err error)
}

// A node is one program that plays a scenario with the keys of one case.
type node struct {
	s     *scenario
	name  string // of the case; its keys are in a scope of that name
	gate  gate
	store *gated
	box   outbox.Store
	at    provider
	e     *retrysafe.Engine
	seen  *seen
	turns atomic.Int64
	limit time.Duration // of a step of the store
	id    string        // of this node among all
}

var nodes atomic.Int64

// node returns a node over a db, behind a gate. Its steps have as long as limit.
func (g *rig) node(p *sandbox.DB, at provider, through gate, limit time.Duration, s *scenario, name string) (*node, error) {
	n := &node{
		s: s, name: name, gate: through, limit: limit, at: at, seen: newSeen(), box: gatedBox{p.Outbox, through},
		id: fmt.Sprintf("%d.%d", os.Getpid(), nodes.Add(1)),
	}
	n.store = &gated{TxStore: p.TxStore(), gate: through, scope: name, seen: n.seen}
	policy := s.policy
	policy.Lease, policy.Reconcile = lease, reconcileAfter
	var below retrysafe.Store = n.store
	if g.bend != nil {
		below = g.bend(below)
	}
	var err error
	n.e, err = retrysafe.New(below, &retrysafe.Options{Policy: policy, StoreTimeout: limit, SettleTimeout: 2 * limit})
	return n, err
}

// key is the key that a scenario is about.
const key = "key"

func (n *node) ref(key string) retrysafe.Ref { return retrysafe.Ref{Scope: n.name, Key: key} }

// operation is what the scenarios do.
const operation = "pay"

func (n *node) call() retrysafe.Call { return retrysafe.Call{Ref: n.ref(key), Operation: operation} }

// by names one run of an operation, unlike any other.
func (n *node) by() string { return fmt.Sprintf("%s.%d", n.id, n.turns.Add(1)) }

// stepCall is the name of the step that calls the provider.
const stepCall = "call"

// charge calls the provider. Without a key it does not recognise a second call.
func (n *node) charge(ctx context.Context, key, request string) (string, error) {
	got, _, err := through(ctx, n.gate, stepCall, func() (string, error) {
		return n.at.Charge(ctx, effect.Order{Job: n.name, Key: key, Request: request})
	})
	return got, err
}

// inTx does something in a transaction, which it leaves to it to commit.
func (n *node) inTx(ctx context.Context, do func(context.Context, retrysafe.Tx, sandbox.AddEffect) error) error {
	ctx, cancel := context.WithTimeout(ctx, n.limit)
	defer cancel()
	tx, book, err := n.store.BeginTx(ctx)
	if err != nil {
		return retrysafe.NotExecuted(err)
	}
	// The key first: SQLite's write lock is taken in turn by that.
	if _, err = tx.Reserve(ctx, n.ref(key)); err == nil {
		err = do(ctx, tx, book)
	} else {
		err = retrysafe.NotExecuted(err)
	}
	if err != nil {
		_ = tx.Rollback(context.WithoutCancel(ctx)) // the first error says more
	}
	return err
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// duties are the options of this node's janitors.
func (n *node) duties() janitor.Options {
	return janitor.Options{Workers: 1, StoreTimeout: n.limit, Logger: quiet}
}

// callTimeout is how long a worker gives the provider. It holds its part of the
// outbox for three times as long.
const callTimeout = 300 * time.Millisecond

// deliver does what is due in the outbox, also of other cases.
func (n *node) deliver(ctx context.Context) error {
	sink := outbox.SinkFunc(func(ctx context.Context, d *outbox.Delivery) outbox.Receipt {
		var id string
		_, _, err := through(ctx, n.gate, stepCall, func() (_ struct{}, err error) {
			id, err = n.at.Charge(ctx, effect.Order{Job: d.Topic, Key: d.Key, Request: string(d.Payload)})
			return struct{}{}, err
		})
		if err != nil {
			return outbox.Receipt{Err: err}
		}
		answer := answerOf(string(d.Payload), id)
		return outbox.Receipt{ProviderRef: id, Answer: &answer}
	})
	w, err := outbox.NewWorker(n.box, sink, &outbox.Options{
		Timeout: callTimeout, Lease: 3 * callTimeout, MaxTries: 1000, Logger: quiet,
		Backoff: outbox.Backoff{First: time.Millisecond, Longest: 5 * time.Millisecond},
	})
	if err != nil {
		return err
	}
	_, err = w.RunOnce(ctx)
	if back := w.Release(ctx); err == nil {
		err = back
	}
	return err
}

// answerOf is the answer to a client: the run that did it, and the provider's ID for it.
func answerOf(by, id string) retrysafe.Result {
	return retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte(by + " " + id)}
}

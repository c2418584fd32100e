package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// effects is the table of effects in each server's database.
var effects = effect.TableIn("")

// lease is short, so that what dies with a server is given up soon.
const lease = 500 * time.Millisecond

// underLoad are the options of nodes while servers are killed: they do not wait long
// for a dead one.
var underLoad = retrysafe.Options{
	StoreTimeout: 500 * time.Millisecond, SettleTimeout: 100 * time.Millisecond,
	// A node that is closed gives up soon what it could not store.
	Policy: retrysafe.Policy{Lease: lease, MaxRun: 40 * lease},
}

// A node is what one process of a service has: a store of its own, and an engine
// for each mode. Nothing but the engines keeps a second effect of a key away.
type node struct {
	store   *pgstore.Store
	engines map[effect.Mode]*retrysafe.Engine
	outside *effect.Provider
	// within, if it is not nil, is called in each operation, after its effect and
	// before its commit or settlement.
	within func()
}

// A wrapper puts something between engines and their store.
type wrapper func(retrysafe.Store) retrysafe.Store

// openNode opens a node over the server at a URL. Opts may hold all but effects and
// lapse; wrap may be nil.
func openNode(ctx context.Context, url string, outside *effect.Provider, opts retrysafe.Options, wrap wrapper) (*node, error) {
	s, err := pgstore.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	n := &node{store: s, outside: outside, engines: map[effect.Mode]*retrysafe.Engine{}}
	if err := effects.Create(ctx, s.Pool()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := effect.SeenInTx(ctx, s, string(effect.InTx)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	var store retrysafe.Store = s
	if wrap != nil {
		store = wrap(s)
	}
	for _, m := range effect.Modes {
		opts := opts
		m.Declare(&opts.Policy)
		opts.Policy.AsyncReserve = opts.Policy.AsyncReserve && m != effect.Unprotected
		if n.engines[m], err = retrysafe.New(store, &opts); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return n, nil
}

// openNodes opens several nodes over one server. Every other one does not wait for
// its reservations to be durable, where it may.
func openNodes(ctx context.Context, count int, url string, outside *effect.Provider, wrap wrapper) (nodes []*node, err error) {
	for i := range count {
		opts := underLoad
		opts.Policy.AsyncReserve = i%2 == 1
		n, err := openNode(ctx, url, outside, opts, wrap)
		if err != nil {
			closeNodes(nodes)
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// closeNodes closes nodes whose server may be gone, so an error says nothing.
func closeNodes(nodes []*node) {
	for _, n := range nodes {
		_ = n.store.Close()
	}
}

// pay asks for one payment under a key. Mine is the receipt that this very call
// writes if it has the effect.
func (n *node) pay(ctx context.Context, m effect.Mode, key string) (mine string, out retrysafe.Outcome, err error) {
	mine = rand.Text()
	call, e := retrysafe.Call{Ref: retrysafe.Ref{Scope: "till", Key: key}, Operation: string(m)}, n.engines[m]
	switch m {
	case effect.OneCommit:
		out, err = retrysafe.DoTx(ctx, e, n.store, call, func(ctx context.Context, tx pgx.Tx) (retrysafe.Result, error) {
			err := effects.Insert(ctx, tx, key, mine)
			n.pass()
			return answer(mine), err
		})
	case effect.InTx:
		out, err = e.Do(ctx, call, func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			return answer(mine), n.payInTx(ctx, x, mine)
		})
	default:
		out, err = e.Do(ctx, call, func(_ context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			order := effect.Order{Job: key, By: mine}
			if m == effect.Keyed {
				order.Key = x.DownstreamKey("charge")
			}
			done := n.outside.Do(order)
			n.pass()
			return answer(done.By), nil
		})
	}
	return mine, out, err
}

func (n *node) payInTx(ctx context.Context, x *retrysafe.Execution, receipt string) error {
	tx, err := n.store.Pool().Begin(ctx)
	if err != nil {
		return retrysafe.NotExecuted(err)
	}
	if err := effects.Insert(ctx, tx, x.Ref().Key, receipt); err != nil {
		return retrysafe.NotExecuted(errors.Join(err, tx.Rollback(ctx))) // no commit was sent
	}
	if err := x.CompleteTx(ctx, n.store.Tx(tx), answer(receipt)); err != nil {
		return err
	}
	n.pass()
	return tx.Commit(ctx)
}

func (n *node) pass() {
	if n.within != nil {
		n.within()
	}
}

// answer is what a payment with that receipt answers: bytes of any kind, and of
// many lengths.
func answer(receipt string) retrysafe.Result {
	return retrysafe.Result{
		Status: 201, Header: map[string][]string{"Receipt": {receipt}},
		Body: []byte(receipt + "\x00\xff" + strings.Repeat(receipt[:2], int(receipt[0])*int(receipt[1])/8)),
	}
}

package demo

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/outbox/sink/httpsink"
)

// settings are the configuration of a node.
type settings struct{ Listen, Store, Provider, Profile string }

// node is one node of the API, with its own worker and janitor. All nodes share one
// database.
type node struct {
	db     *database
	engine *retrysafe.Engine
	sink   *httpsink.Sink
	worker *outbox.Worker
	duties []janitor.Duty
	http   *serving
	logger *slog.Logger
}

// openNode opens a node that already listens. The caller has to run it.
func openNode(ctx context.Context, s settings, logger *slog.Logger) (n *node, err error) {
	logger = slog.New(withoutTraffic{logger.Handler()})
	db, err := openDatabase(ctx, s.Store)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.close())
		}
	}()
	n = &node{db: db, logger: logger}
	if n.engine, err = retrysafe.New(db.keys, &retrysafe.Options{StoreTimeout: storeMay, SettleTimeout: storeMay}); err != nil {
		return nil, err
	}
	if n.sink, err = newSink(db, s.Provider); err != nil {
		return nil, err
	}
	n.worker, err = outbox.NewWorker(db.messages, n.sink, &outbox.Options{
		Timeout: providerMay + rowMay, Lease: workerLease, Poll: lookEvery, MaxTries: maxTries,
		Backoff: outbox.Backoff{First: firstAgain, Longest: lastAgain}, Horizon: horizon, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	a := &api{db: db, bank: newBank(s.Provider), wake: n.worker.Wake}
	handler, err := a.handlers(n.engine, profiles[s.Profile], logger)
	if err != nil {
		return nil, err
	}
	common := janitor.Options{Logger: logger}
	often := janitor.Options{Logger: logger, Every: askEvery}
	n.duties = []janitor.Duty{
		janitor.NewSweeper(db.keys, &common),
		janitor.NewReaper(db.keys, &janitor.ReaperOptions{Options: common}),
		janitor.NewReconciler(db.keys, janitor.Resolvers{"POST /charges": janitor.ResolverFunc(a.resolveCharge)},
			&janitor.ReconcilerOptions{Options: often, By: "the provider's ledger", Timeout: providerMay, Pause: time.Second, MaxPause: time.Minute}),
	}
	n.http, err = serve(ctx, s.Listen, handler)
	return n, err
}

// run works until ctx ends. Then it waits for requests, then for deliveries that are
// under way, then for answers that the store has not confirmed yet.
func (n *node) run(ctx context.Context) (err error) {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var all sync.WaitGroup
	all.Go(func() {
		if err := n.worker.Run(background); err != nil {
			n.logger.Error("payments: the worker has ended", "error", err)
		}
	})
	all.Go(func() {
		if err := janitor.Run(background, n.duties...); err != nil {
			n.logger.Error("payments: the janitor has ended", "error", err)
		}
	})
	select {
	case err = <-n.http.failed:
	case <-ctx.Done():
	}
	err = errors.Join(err, n.http.stop())
	stop()
	all.Wait()
	n.sink.Close()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return errors.Join(err, n.engine.Drain(last), n.db.close())
}

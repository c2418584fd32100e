package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deployment"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

const (
	// probeTurn is how often the health of the store is looked at.
	probeTurn = time.Second
	// probeAfter is how long the store may go without a write before the probe writes. It
	// bounds both what an idle gateway costs and how long a failed store goes unnoticed.
	probeAfter = 5 * time.Second
	// probeTimeout bounds one write of the probe, with its tries.
	probeTimeout = 1500 * time.Millisecond
	// probeTries is how often the probe sends one write: the connection may have died with
	// a server that is back since.
	probeTries = 3
	// probeRetain is how long the record outlives the gateways that write it.
	probeRetain = 24 * time.Hour
)

var (
	errStore    = errors.New("the store does not answer")
	errUnprobed = errors.New("the first write to the store has not ended yet")
)

// storeHealth knows whether the store takes writes. A store that is down looks no
// different to a gateway without requests, and one with a full disk or a read-only
// standby answers reads; only a write tells. So while no request writes, a probe does:
// one small record of [deployment.Probe], one commit in each probeAfter.
//
// It is the engine's Observer, because events tell which writes have succeeded.
type storeHealth struct {
	engine *retrysafe.Engine
	store  retrysafe.Store    // below encryption and cache
	next   retrysafe.Observer // nil if there is none
	logger *slog.Logger

	wrote atomic.Bool // a request's write has succeeded since the last turn

	probing sync.Mutex // one probe at a time
	record  retrysafe.Record
	last    time.Time // the last write that succeeded

	mu      sync.Mutex
	failure error // of the last write
}

func newStoreHealth(p *Parts, logger *slog.Logger) *storeHealth {
	return &storeHealth{store: p.Store, next: p.Observer, logger: logger, failure: errUnprobed}
}

// Observe implements [retrysafe.Observer].
func (h *storeHealth) Observe(e retrysafe.Event) {
	switch e.Kind {
	case retrysafe.EventReserved, retrysafe.EventRetried, retrysafe.EventAccepted, retrysafe.EventCompleted,
		retrysafe.EventReleased, retrysafe.EventQuarantined, retrysafe.EventLapsed:
		if !h.wrote.Load() { // most requests find it set
			h.wrote.Store(true)
		}
	case retrysafe.EventStoreError:
		if errors.Is(e.Err, storemove.ErrMoved) || errors.Is(e.Err, storemove.ErrFilling) { // the store is closed, so no probe has to confirm it
			h.wrote.Store(false)
			h.note(e.Err)
		}
	default: // nothing was written, or not by a request
	}
	if h.next != nil {
		h.next.Observe(e)
	}
}

// run looks at the store until ctx ends.
func (h *storeHealth) run(ctx context.Context) error {
	turns := time.NewTicker(probeTurn)
	defer turns.Stop()
	for {
		h.turn(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-turns.C:
		}
	}
}

// turn probes the store if there is a reason to.
func (h *storeHealth) turn(ctx context.Context) {
	h.probing.Lock()
	defer h.probing.Unlock()
	if h.wrote.Swap(false) {
		h.last = time.Now()
		h.note(nil)
	}
	if !h.engine.Healthy() {
		h.closeBreaker(ctx)
	}
	if h.get() == nil && time.Since(h.last) < probeAfter {
		return
	}
	if err := h.write(ctx); ctx.Err() == nil {
		h.note(err)
	}
}

// ready says what keeps the store from being used. It waits for the first probe, and for
// no other one that is under way.
func (h *storeHealth) ready() error {
	locked := true
	if errors.Is(h.get(), errUnprobed) {
		h.probing.Lock() // a probe has a time limit
	} else {
		locked = h.probing.TryLock()
	}
	if locked {
		switch {
		case errors.Is(h.get(), errUnprobed):
			h.note(h.write(context.Background()))
		case !h.engine.Healthy():
			h.closeBreaker(context.Background())
		}
		h.probing.Unlock()
	}
	if !h.engine.Healthy() {
		return errStore
	}
	return h.get()
}

// closeBreaker sends a read through the engine, which tries a write of its own if the
// store answers that. A gateway that is not ready gets no requests that would do it.
func (h *storeHealth) closeBreaker(ctx context.Context) {
	absent := retrysafe.Ref{Scope: retrysafe.SystemScope("deployment"), Key: "absent"}
	_, _ = h.engine.Peek(ctx, retrysafe.Call{Ref: absent}) // the engine bounds it, and notes how it went
}

// write writes the record of the probe.
func (h *storeHealth) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var failed error
	for try := range probeTries {
		put, w := h.store.Create, retrysafe.Write{Record: retrysafe.Record{Ref: deployment.Probe()}}
		if h.record.Revision != 0 {
			put, w = h.store.Swap, h.record.Update()
		}
		_, _ = rand.Read(w.Owner[:]) // it never fails
		w.Operation, w.State, w.Version = "probe the store", retrysafe.StateCompleted, retrysafe.RecordVersion
		w.Attempt, w.Overwrite, w.Term, w.Retain = 1, true, probeRetain, probeRetain
		w.Result = &retrysafe.Result{Status: 200}
		got, err := put(ctx, w)
		switch {
		case err == nil:
			h.record, h.last = got, time.Now()
			return nil
		case errors.Is(err, retrysafe.ErrExists), errors.Is(err, retrysafe.ErrConflict):
			h.record = got // as another gateway has written it
		case errors.Is(err, retrysafe.ErrNotFound):
			h.record = retrysafe.Record{}
		default:
			select {
			case <-time.After(time.Duration(try+1) * 20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		failed = err
	}
	if errors.Is(failed, retrysafe.ErrConflict) { // another gateway's write has succeeded each time
		h.last = time.Now()
		return nil
	}
	return fmt.Errorf("the store takes no writes: %w", failed)
}

// get returns what the last write has shown.
func (h *storeHealth) get() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failure
}

// note records what a write has shown, and logs a change.
func (h *storeHealth) note(err error) {
	h.mu.Lock()
	was := h.failure
	h.failure = err
	h.mu.Unlock()
	switch {
	case err != nil && (was == nil || errors.Is(was, errUnprobed)):
		h.logger.Error("retrysafe: not ready; look at the store's disk, its server, and whether it is read-only", "error", brief(err))
	case err == nil && was != nil && !errors.Is(was, errUnprobed):
		h.logger.Info("retrysafe: the store takes writes again")
	}
}

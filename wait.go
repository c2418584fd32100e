package retrysafe

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	firstTick = 2 * time.Millisecond
	longTick  = 250 * time.Millisecond
)

// waiterSet is the set of calls that wait for an attempt in flight. A waiter holds no
// connection: it sleeps, and loads the record now and then. The waiters of one key
// share each load. An attempt that is settled in this process notifies them without any
// load.
type waiterSet struct {
	most    int
	count   atomic.Int64
	mu      sync.Mutex
	refs    map[Ref]*waitedKey
	tenants map[string]int // waiters by tenantOf
}

// scopePart separates the tenant from the rest of a scope that a guard has narrowed.
const scopePart = "\x1f"

// tenantOf returns the tenant that a scope belongs to.
func tenantOf(scope string) string {
	tenant, _, _ := strings.Cut(scope, scopePart)
	return tenant
}

// waitedKey is what the waiters of one key share.
type waitedKey struct {
	waiters int
	looking bool      // one of them is loading the record
	at      time.Time // when rec was loaded
	rec     Record
	err     error
}

// join adds a waiter for ref, or returns nil if the set is full. A tenant may have as
// many waiters as there is still room for, so that it cannot use up the room of others.
func (w *waiterSet) join(ref Ref) *waitedKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	tenant := tenantOf(ref.Scope)
	count := int(w.count.Load()) + 1
	if own := w.tenants[tenant] + 1; count > w.most || own > w.most-count && count > 1 {
		return nil
	}
	w.count.Store(int64(count))
	if w.refs == nil {
		w.refs, w.tenants = make(map[Ref]*waitedKey), make(map[string]int)
	}
	w.tenants[tenant]++
	on := w.refs[ref]
	if on == nil {
		on = new(waitedKey)
		w.refs[ref] = on
	}
	on.waiters++
	return on
}

func (w *waiterSet) leave(ref Ref, on *waitedKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count.Add(-1)
	tenant := tenantOf(ref.Scope)
	if w.tenants[tenant]--; w.tenants[tenant] == 0 {
		delete(w.tenants, tenant)
	}
	if on.waiters--; on.waiters == 0 {
		delete(w.refs, ref)
	}
}

// notify passes a settled record to the calls that wait for it.
func (w *waiterSet) notify(r *Record, clock Clock) {
	if w.count.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if on := w.refs[r.Ref]; on != nil {
		on.rec, on.err, on.at = *r, nil, clock.Now()
	}
}

// wait waits for the attempt that holds got, if the policy says so. On success got is
// the record that is no longer in flight. [ErrInFlight]: the policy does not wait, or
// the time is over.
func (b *begin) wait(got *Record) error {
	e := b.e
	if e.policy.InFlight != InFlightWait {
		return ErrInFlight
	}
	b.startWaiting()
	next, err := e.await(b.ctx, got.Ref, got.Revision, b.waitUntil)
	b.renewStoreContext()
	if err == nil {
		*got = next
	}
	return err
}

// pause sleeps while a transaction holds the key without a visible record, if the
// policy says so.
func (b *begin) pause() error {
	e := b.e
	if e.policy.InFlight != InFlightWait {
		return ErrInFlight
	}
	b.startWaiting()
	left := b.waitUntil.Sub(e.clock.Now())
	if left <= 0 {
		return ErrInFlight
	}
	b.paused = min(max(b.paused*3/2, firstTick), longTick)
	err := e.clock.Sleep(b.ctx, min(b.paused, left))
	b.renewStoreContext()
	return err
}

func (b *begin) startWaiting() {
	if b.waitUntil.IsZero() {
		b.waitUntil = b.e.clock.Now().Add(b.e.policy.Wait)
	}
}

// await returns the record of ref once it is newer than seen and not in flight. A zero
// until waits until ctx is done.
func (e *Engine) await(ctx context.Context, ref Ref, seen int64, until time.Time) (Record, error) {
	on := e.waits.join(ref)
	if on == nil {
		return Record{}, ErrInFlight
	}
	defer e.waits.leave(ref, on)
	for tick := firstTick; ; tick = min(tick*3/2, longTick) {
		nap := tick
		if !until.IsZero() {
			left := until.Sub(e.clock.Now())
			if left <= 0 {
				return Record{}, ErrInFlight
			}
			nap = min(nap, left)
		}
		if err := e.clock.Sleep(ctx, nap); err != nil {
			return Record{}, err
		}
		got, err := e.refresh(ctx, on, ref, seen, tick)
		switch {
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrUnreadable):
			return Record{}, err
		case err != nil, got.Revision <= seen && !got.Due():
			continue // nothing newer is known yet
		case (got.State == StateInProgress || got.State == StateAccepted) && !got.Due():
			seen = got.Revision
		default:
			return got, nil
		}
	}
}

// errLooking: another waiter is loading the record at this moment.
var errLooking = errors.New("another waiter is looking")

// refresh returns what is known of ref: a recent load of another waiter, or the record
// of a settled attempt. Otherwise it loads the record from the store.
func (e *Engine) refresh(ctx context.Context, on *waitedKey, ref Ref, seen int64, tick time.Duration) (Record, error) {
	w := &e.waits
	now := e.clock.Now()
	w.mu.Lock()
	known := on.rec.Revision > seen || !on.at.IsZero() && now.Sub(on.at) < tick/2
	if known || on.looking {
		rec, err := on.rec, on.err
		w.mu.Unlock()
		if !known {
			err = errLooking
		}
		return rec, err
	}
	on.looking = true
	w.mu.Unlock()

	step := e.newStoreContext(ctx)
	defer step.done()
	got, err := e.store.Load(step, ref)

	w.mu.Lock()
	defer w.mu.Unlock()
	on.looking = false
	if !isAnswer(err) && on.rec.Revision > seen { // an attempt was settled meanwhile, and the load says nothing of it
		return on.rec, on.err
	}
	if got.Revision >= on.rec.Revision || err != nil { // an attempt that was settled meanwhile has a newer one
		on.rec, on.err, on.at = got, err, now
	}
	return on.rec, on.err
}

// Attach waits until the attempt under ref is no longer in flight, or ctx is done, and
// returns its answer. It starts nothing. [ErrNotFound]: there is no such key, or its
// attempt did not happen. [ErrUnknown]: whether it happened is not known.
func (e *Engine) Attach(ctx context.Context, ref Ref) (Outcome, error) {
	step := e.newStoreContext(ctx)
	got, err := e.store.Load(step, ref)
	step.done()
	if err == nil && (got.State == StateInProgress || got.State == StateAccepted) && !got.Due() {
		got, err = e.await(ctx, ref, got.Revision, time.Time{})
	}
	if err != nil {
		return Outcome{}, err
	}
	e.confirmExpiry(&got)
	switch {
	case got.State == StateCompleted && got.Result != nil && !got.Due():
		return outcomeOf(&got, true).own(), nil
	case got.State == StateUnknown, got.State == StateInProgress:
		return Outcome{}, e.refuse(ErrUnknown, &got)
	case got.State == StateAccepted:
		return Outcome{}, e.refuse(ErrAccepted, &got)
	default:
		return Outcome{}, ErrNotFound
	}
}

// Peek returns what the call would get, without reserving or changing anything: an
// outcome to replay, a [*RefusedError], or [ErrNotFound] if Begin would run it.
func (e *Engine) Peek(ctx context.Context, c Call) (*Outcome, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	b := e.newBegin(ctx, &c)
	defer b.done()
	b.trace(0, "")
	out, err := b.peek()
	b.endRefused(err)
	return out, err
}

// peek looks the record up and decides what the call would get.
func (b *begin) peek() (*Outcome, error) {
	e := b.e
	var got Record
	err := b.send(opLoad, &Write{Record: Record{Ref: b.c.Ref}}, &got)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, ErrNotFound
	case errors.Is(err, ErrUnreadable):
		return nil, e.refuse(err, &got)
	case err != nil:
		return nil, b.unavailable(err)
	}
	e.confirmExpiry(&got)
	switch v := decide(&b.c, &e.policy, &got); {
	case v.do == actReplay:
		e.observe(EventReplayed, &got, 0, nil)
		b.endTrace(EventReplayed, &got, nil)
		out := outcomeOf(&got, true)
		return &out, nil
	case v.do == actRefuse:
		return nil, e.refuse(v.why, &got)
	case v.do == actQuarantine:
		return nil, e.refuse(ErrUnknown, &got)
	default:
		return nil, ErrNotFound
	}
}

package janitor_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor"
)

// provider charges cards: once under a key, if it is sent one.
type provider struct {
	mu      sync.Mutex
	charges []string
	refused map[string]bool
}

var errRefused = errors.New("refused")

func (p *provider) charge(key string, honoured bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused[key] {
		return errRefused
	}
	for _, c := range p.charges {
		if honoured && c == key {
			return nil
		}
	}
	p.charges = append(p.charges, key)
	return nil
}

func (p *provider) find(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.charges {
		if c == key {
			return true
		}
	}
	return false
}

// cancel refuses the key from now on, unless it was charged. It reports which.
func (p *provider) cancel(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.charges {
		if c == key {
			return false
		}
	}
	if p.refused == nil {
		p.refused = map[string]bool{}
	}
	p.refused[key] = true
	return true
}

func (p *provider) once(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.charges) != 1 {
		t.Errorf("the provider charged %d times: %q", len(p.charges), p.charges)
	}
}

// "Not found" while the first attempt may be alive is no proof. What nothing
// protects stays unknown, and ends with an operator; the zombie wakes and charges,
// and that is the only charge.
func TestW56_NotFoundWithALiveZombieUnprotected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, retrysafe.Policy{}), &provider{}
		zombie, wake := w.falls(t)
		c := w.reconciler(janitor.ResolverFunc(func(_ context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
			if p.find(r.Key) {
				return janitor.Happened(answer("charged"), "found"), nil
			}
			return janitor.NotHappened("no such charge"), nil
		}), janitor.ReconcilerOptions{})
		asked(t, c)

		w.refused(t, retrysafe.ErrUnknown)
		r := w.record(t)
		if r.State != retrysafe.StateUnknown || !r.Inquiry.Dead || r.Inquiry.Tries != 12 {
			t.Errorf("it is %s after %d tries, dead %v", r.State, r.Inquiry.Tries, r.Inquiry.Dead)
		}
		if got := c.Stats(); got.Dead != 1 || got.Asked != 12 || got.StillUnknown != 11 || got.Released != 0 {
			t.Errorf("counted %+v", got)
		}
		if w.saw(retrysafe.EventDead) != 1 || w.saw(retrysafe.EventInquired) != 11 {
			t.Error("no event reports the dead letter")
		}
		wake()
		must(t, p.charge(zombie.Ref().Key, false))
		must(t, zombie.Complete(t.Context(), answer("late")))
		w.replays(t, 201, "late")
		p.once(t)
	})
}

// Where every attempt carries the same key, "not found" lets the next one run: the
// provider recognises the second request.
func TestW56_NotFoundWithALiveZombieKeyed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseQuarantine}), &provider{}
		zombie, wake := w.falls(t)
		w.is(t, retrysafe.StateUnknown)
		c := w.reconciler(&says{verdict: janitor.NotHappened("no such charge")}, janitor.ReconcilerOptions{})
		asked(t, c)
		if got := c.Stats(); got.Released != 1 || got.Dead != 0 || w.saw(retrysafe.EventResolved) != 1 {
			t.Errorf("counted %+v", got)
		}
		heir := w.begins(t)
		must(t, p.charge(heir.DownstreamKey("charge"), true))
		must(t, heir.Complete(t.Context(), answer("heir's")))
		wake()
		must(t, p.charge(zombie.DownstreamKey("charge"), true))
		if err := zombie.Complete(t.Context(), answer("zombie's")); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("the zombie's completion = %v, want ErrLost", err)
		}
		w.replays(t, 201, "heir's")
		p.once(t)
	})
}

// A provider that has confirmed to refuse the first attempt from now on is proof.
func TestW56_TombstoneAtTheProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, retrysafe.Policy{}), &provider{}
		reference := func(r retrysafe.Ref, attempt int) string { return r.Key + "/" + string(rune('0'+attempt)) }
		zombie, wake := w.falls(t)
		c := w.reconciler(janitor.ResolverFunc(func(_ context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
			if !p.cancel(reference(r.Ref, r.Attempt)) {
				return janitor.Happened(answer("charged"), "found"), nil
			}
			return janitor.Tombstoned("cancelled before it came"), nil
		}), janitor.ReconcilerOptions{Settle: time.Hour})
		time.Sleep(time.Minute)
		once(t, c, 1) // a proof needs no time to settle
		heir := w.begins(t)
		must(t, p.charge(reference(heir.Ref(), heir.Attempt()), false))
		must(t, heir.Complete(t.Context(), answer("heir's")))
		wake()
		if err := p.charge(reference(zombie.Ref(), zombie.Attempt()), false); !errors.Is(err, errRefused) {
			t.Errorf("the zombie's charge: %v", err)
		}
		if err := zombie.Complete(t.Context(), answer("zombie's")); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("the zombie's completion = %v, want ErrLost", err)
		}
		w.replays(t, 201, "heir's")
		p.once(t)
	})
}

// A provider that shows a charge only after a while is not believed before.
func TestW57_NotFoundIsNotBelievedBeforeItHasSettled(t *testing.T) {
	t.Parallel()
	for _, effects := range []retrysafe.Effects{retrysafe.EffectsKeyed, retrysafe.EffectsInTx} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, retrysafe.Policy{Effects: effects})
			charged := time.Now()
			must(t, w.begins(t).Quarantine(t.Context(), errors.New("no answer in time")))
			resolver := janitor.ResolverFunc(func(context.Context, retrysafe.Record) (retrysafe.Evidence, error) {
				if time.Since(charged) < 9*time.Minute {
					return janitor.NotHappened("no such charge"), nil
				}
				return janitor.Happened(answer("charged"), "ch_1"), nil
			})
			runFor(t, time.Hour, w.reconciler(resolver, janitor.ReconcilerOptions{Settle: 10 * time.Minute}))
			w.replays(t, 201, "charged")
			if r := w.record(t); !strings.Contains(r.Inquiry.Notes[0].Text, "too soon") {
				t.Errorf("the first note says %q", r.Inquiry.Notes[0].Text)
			}
		})
	}
}

// What has settled and is still not found did not happen.
func TestW57_NotFoundIsBelievedAfterItHasSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed})
		must(t, w.begins(t).Quarantine(t.Context(), errors.New("no answer in time")))
		resolver := &says{verdict: janitor.NotHappened("no such charge")}
		c := w.reconciler(resolver, janitor.ReconcilerOptions{Settle: 10 * time.Minute})
		runFor(t, 9*time.Minute, c)
		w.is(t, retrysafe.StateUnknown)
		runFor(t, time.Hour, c)
		w.is(t, retrysafe.StateRetryable)
	})
}

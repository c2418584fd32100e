package telemetry

import (
	"strconv"
	"strings"

	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/storekit"
	"github.com/retrysafe/retrysafe/store/tiered"
)

var (
	_ Cache = tiered.Store(nil)
	_ Guard = (*httpkey.Guard)(nil)
)

// A Cache is a [tiered.Store], or a type that has one.
type Cache interface{ Stats() tiered.Stats }

// Cache adds a cache as a source. Nil adds none.
func (m *Metrics) Cache(c Cache) (forget func()) {
	if c == nil {
		return func() {}
	}
	return m.pull.watch(
		func(r reading) {
			s := c.Stats()
			r.add(cacheHits, float64(s.Hits))
			r.add(cacheMisses, float64(s.Misses))
			r.add(cacheBypassed, float64(s.Bypassed))
			r.add(cacheEvicted, float64(s.Evicted))
		},
		func(r reading) {
			s := c.Stats()
			r.add(cacheEntries, float64(s.Entries))
			r.add(cacheBytes, float64(s.Bytes))
		})
}

// SharedCache adds a cache that several processes share as a source, by the method Hits of
// a redistier.Store. Nil adds none.
func (m *Metrics) SharedCache(hits func() (hits, misses uint64)) (forget func()) {
	if hits == nil {
		return func() {}
	}
	return m.pull.watch(func(r reading) {
		hits, misses := hits()
		r.add(sharedCacheHits, float64(hits))
		r.add(sharedCacheMisses, float64(misses))
	}, nil)
}

// Batches adds the batches of a store as a source, by the method BatchStats that a store
// with group commit has. Nil adds none.
func (m *Metrics) Batches(stats func() storekit.BatchStats) (forget func()) {
	if stats == nil {
		return func() {}
	}
	return m.pull.watch(
		func(r reading) {
			s := stats()
			r.add(batches, float64(s.Batches))
			r.add(batchRequests, float64(s.Requests))
		},
		func(r reading) {
			s := stats()
			r.add(batchesInFlight, float64(s.InFlight))
			r.add(batchWaiting, float64(s.Waiting))
		})
}

// A Guard is an [httpkey.Guard], or a type that has several.
type Guard interface{ Counts() map[string]uint64 }

// Guard adds the findings of guards as a source. Nil adds none. A guard that also has these
// methods, as that of a gateway, shows what its limits refused and how much of each is used,
// and whether it works by a former configuration because a reload was refused:
//
//	Limits() (refused map[string]uint64, held map[string][2]int64) // used, and what there is
//	ReloadRefused() bool
func (m *Metrics) Guard(g Guard) (forget func()) {
	if g == nil {
		return func() {}
	}
	limited, hasLimits := g.(interface {
		Limits() (refused map[string]uint64, held map[string][2]int64)
	})
	reloads, hasReloads := g.(interface{ ReloadRefused() bool })
	return m.pull.watch(func(r reading) {
		if hasLimits {
			refused, _ := limited.Limits()
			for limit, n := range refused {
				r.add(limitRefusals, float64(n), label(limit))
			}
		}
		for code, n := range g.Counts() {
			code, observed := strings.CutSuffix(code, " (observed)")
			r.add(findings, float64(n), label(code), strconv.FormatBool(!observed))
		}
	}, func(r reading) {
		if hasLimits {
			_, held := limited.Limits()
			for limit, of := range held {
				r.add(limitUsed, float64(of[0]), label(limit))
				r.add(limitMax, float64(of[1]), label(limit))
			}
		}
		if hasReloads {
			r.add(configRefused, oneIf(reloads.ReloadRefused()))
		}
	})
}

// Webhook adds the events of a webhook's intake as a source, under the name of the
// webhook. Nil adds none. A guard's Counts have the same form as those of a
// webhook.Intake.
func (m *Metrics) Webhook(name string, intake Guard) (forget func()) {
	if intake == nil {
		return func() {}
	}
	return m.pull.watch(func(r reading) {
		for outcome, n := range intake.Counts() {
			r.add(webhookEvents, float64(n), label(name), label(outcome))
		}
	}, nil)
}

// Store adds the health of a store as a source, as [retrysafe.Engine.Healthy] reports
// it. With several sources the metric is 1 only if all are healthy. Nil adds none.
func (m *Metrics) Store(healthy func() bool) (forget func()) {
	if healthy == nil {
		return func() {}
	}
	return m.pull.watch(nil, func(r reading) { r.add(storeUp, oneIf(healthy())) })
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

package gateway

import (
	"sync"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

// slots are a counting semaphore: requests of a route at the upstream, or bytes in
// memory. One oversized request is admitted when nothing else is held.
type slots struct {
	max  int64 // zero: unlimited
	held atomic.Int64
}

func (s *slots) full() bool { return s.max > 0 && s.held.Load() >= s.max }

// acquire takes n slots, which release gives back.
func (s *slots) acquire(n int64) bool {
	if held := s.held.Add(n); s.max > 0 && held > s.max && held > n && n > 0 {
		s.held.Add(-n)
		return false
	}
	return true
}

func (s *slots) release(n int64) { s.held.Add(-n) }

// tenantSlots are a semaphore of the same size for each tenant. A tenant that has
// nothing at the upstream takes no memory.
type tenantSlots struct {
	max int // zero: unlimited

	mu   sync.Mutex
	held map[string]int
}

func (s *tenantSlots) full(tenant string) bool {
	if s.max == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[tenant] >= s.max
}

func (s *tenantSlots) acquire(tenant string) bool {
	if s.max == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[tenant] >= s.max {
		return false
	}
	if s.held == nil {
		s.held = make(map[string]int)
	}
	s.held[tenant]++
	return true
}

func (s *tenantSlots) release(tenant string) {
	if s.max == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[tenant]--; s.held[tenant] == 0 {
		delete(s.held, tenant)
	}
}

// tenantOf returns whose key it is.
func tenantOf(ref retrysafe.Ref) string {
	tenant, _ := httpkey.Caller(ref)
	return tenant
}

// busy says why a request could not go to the upstream now, or nil. It takes nothing.
func (rt *route) busy(ref retrysafe.Ref) *httpkey.Problem {
	switch {
	case rt.slots.full():
		return &busy
	case rt.g.tenantSlots.max > 0 && rt.g.tenantSlots.full(tenantOf(ref)):
		return &tooMany
	}
	return nil
}

// acquireSlots takes the slots that an attempt needs, or returns the problem that says
// why it cannot.
func (rt *route) acquireSlots(ref retrysafe.Ref) (leave func(), full *httpkey.Problem) {
	if !rt.slots.acquire(1) {
		return nil, &busy
	}
	if rt.g.tenantSlots.max == 0 {
		return func() { rt.slots.release(1) }, nil
	}
	tenant := tenantOf(ref)
	if !rt.g.tenantSlots.acquire(tenant) {
		rt.slots.release(1)
		return nil, &tooMany
	}
	return func() {
		rt.g.tenantSlots.release(tenant)
		rt.slots.release(1)
	}, nil
}

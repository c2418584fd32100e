package gateway

import (
	"sync"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

// slots are places of which there are so many: of a route at the upstream, or of bytes in
// memory. Without a bound there are always enough, and who is alone gets what he needs.
type slots struct {
	most int64 // zero: no bound
	held atomic.Int64
}

func (s *slots) full() bool { return s.most > 0 && s.held.Load() >= s.most }

// take takes n places, which are given back by leave.
func (s *slots) take(n int64) bool {
	if held := s.held.Add(n); s.most > 0 && held > s.most && held > n && n > 0 {
		s.held.Add(-n)
		return false
	}
	return true
}

func (s *slots) leave(n int64) { s.held.Add(-n) }

// shares are the places of all tenants: each has as many. Tenants that have nothing at
// the upstream take no memory.
type shares struct {
	most int // zero: no bound

	mu   sync.Mutex
	held map[string]int
}

func (s *shares) full(tenant string) bool {
	if s.most == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[tenant] >= s.most
}

func (s *shares) take(tenant string) bool {
	if s.most == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[tenant] >= s.most {
		return false
	}
	if s.held == nil {
		s.held = make(map[string]int)
	}
	s.held[tenant]++
	return true
}

func (s *shares) leave(tenant string) {
	if s.most == 0 {
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
	case rt.g.shares.most > 0 && rt.g.shares.full(tenantOf(ref)):
		return &tooMany
	}
	return nil
}

// enter takes the places that an attempt needs, or says why it cannot.
func (rt *route) enter(ref retrysafe.Ref) (leave func(), full *httpkey.Problem) {
	if !rt.slots.take(1) {
		return nil, &busy
	}
	if rt.g.shares.most == 0 {
		return func() { rt.slots.leave(1) }, nil
	}
	tenant := tenantOf(ref)
	if !rt.g.shares.take(tenant) {
		rt.slots.leave(1)
		return nil, &tooMany
	}
	return func() {
		rt.g.shares.leave(tenant)
		rt.slots.leave(1)
	}, nil
}

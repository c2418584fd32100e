package telemetry

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
)

// maxTenants bounds how many tenants may have a label of their own.
const maxTenants = 1000

// tenants counts events by tenant. The first tenants get a counter each, up to the
// limit. From then on a new tenant costs no more than a known one, and no memory.
type tenants struct {
	most   atomic.Int64
	others tenant

	mu    sync.Mutex // held while a tenant is added
	known atomic.Pointer[map[string]*tenant]
}

// A tenant counts its events.
type tenant struct {
	label  string
	events [len(table)]atomic.Uint64
}

func (t *tenants) init(most int) {
	t.most.Store(int64(min(most, maxTenants)))
	t.others.label = other
	t.known.Store(&map[string]*tenant{})
}

// scopePart is the separator with which httpkey narrows a tenant's scope to an
// operation or a principal. These parts are not counted separately, because a client
// can choose them.
const scopePart = '\x1f'

func (t *tenants) of(scope string) *tenant {
	if i := strings.IndexByte(scope, scopePart); i >= 0 {
		scope = scope[:i]
	}
	known := *t.known.Load()
	if one := known[scope]; one != nil {
		return one
	}
	if int64(len(known)) >= t.most.Load() {
		return &t.others
	}
	return t.add(scope)
}

func (t *tenants) add(scope string) *tenant {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := *t.known.Load()
	if one := known[scope]; one != nil {
		return one
	}
	if int64(len(known)) >= t.most.Load() {
		return &t.others
	}
	one := &tenant{label: tenantLabel(scope)}
	known = maps.Clone(known)
	known[strings.Clone(scope)] = one // a copy: scope may share memory with a request
	t.known.Store(&known)
	return one
}

// Tenants sets how many tenants have a label of their own, as [Options.Tenants] does. Those
// that have one keep it.
func (m *Metrics) Tenants(most int) { m.events.tenants.most.Store(int64(min(most, maxTenants))) }

func tenantLabel(scope string) string {
	if scope == "" {
		return "none"
	}
	return retrysafe.HashKey(scope)
}

// counts reads the events of each tenant. Kinds that never occurred are left out.
func (t *tenants) counts(r reading) {
	t.others.count(r)
	for _, one := range *t.known.Load() {
		one.count(r)
	}
}

func (t *tenant) count(into reading) {
	for kind := range t.events {
		if n := t.events[kind].Load(); n > 0 {
			into.add(tenantEvents, float64(n), t.label, retrysafe.EventKind(kind).String())
			if table[kind].duplicate {
				into.add(tenantDuplicates, float64(n), t.label)
			}
		}
	}
}

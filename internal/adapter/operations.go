package adapter

import (
	"maps"
	"sync/atomic"
)

// operations are the names of the operations so far, one for each route, so that requests
// and records share them.
type operations struct {
	known atomic.Pointer[map[route]string]
}

type route struct{ method, pattern string }

// maxOperations bounds the set: a client can think of many methods.
const maxOperations = 1000

func (o *operations) of(method, pattern string) string {
	if pattern == "" {
		return ""
	}
	known := o.known.Load()
	if known == nil {
		known = new(map[route]string)
	}
	if name, ok := (*known)[route{method, pattern}]; ok {
		return name
	}
	name := method + " " + pattern
	if len(*known) < maxOperations {
		more := map[route]string{{name[:len(method)], name[len(method)+1:]}: name} // in memory of its own
		maps.Copy(more, *known)
		o.known.Store(&more) // if two requests add a name at a time, one is added again later
	}
	return name
}

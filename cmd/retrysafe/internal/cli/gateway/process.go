package gateway

import (
	"maps"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
)

// limits are what clients of all configurations share, as a source of metrics.
type limits struct {
	budget *admission.Budget
	server *listener.Server
}

// Counts implements telemetry.Guard. The guards themselves count their findings.
func (*limits) Counts() map[string]uint64 { return nil }

// Limits returns how often each limit was the reason of a refusal, and how much of it is
// used and there is.
func (l *limits) Limits() (refused map[string]uint64, held map[string][2]int64) {
	refused = l.budget.Refusals()
	maps.Copy(refused, l.server.Refusals())
	memory, requests := l.budget.Memory(), l.budget.Requests()
	open, most := l.server.Connections()
	return refused, map[string][2]int64{
		"memory": {memory.Used, memory.Most}, "requests": {requests.Used, requests.Most}, "connections": {int64(open), int64(most)},
	}
}

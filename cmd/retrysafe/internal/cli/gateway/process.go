package gateway

import (
	"maps"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
)

// process is what is one for all configurations of the gateway, as a source of metrics.
type process struct {
	budget *admission.Budget
	server *listener.Server
}

// Counts implements telemetry.Guard. The guards themselves count their findings.
func (*process) Counts() map[string]uint64 { return nil }

// Limits returns how often each limit was the reason of a refusal, and how much of it is
// used and there is.
func (p *process) Limits() (refused map[string]uint64, held map[string][2]int64) {
	refused = p.budget.Refusals()
	maps.Copy(refused, p.server.Refusals())
	memory, requests := p.budget.Memory(), p.budget.Requests()
	open, most := p.server.Connections()
	return refused, map[string][2]int64{
		"memory": {memory.Used, memory.Most}, "requests": {requests.Used, requests.Most}, "connections": {int64(open), int64(most)},
	}
}

// ReloadRefused reports whether the last reload was refused.
func (p *process) ReloadRefused() bool { return p.server.ReloadRefused() }

package webhook

import (
	"strings"
	"sync"

	"github.com/retrysafe/retrysafe"
)

// maxKnown is how many downstream keys one generation of [known] holds.
const maxKnown = 1 << 15

// known remembers which refs downstream keys were derived from. The derivation is a pure
// function, so an entry is never wrong, whatever becomes of the record. Of two
// generations the older one is dropped when the younger one is full, which bounds the
// memory.
type known struct {
	mu         sync.Mutex
	young, old map[string]retrysafe.Ref
}

func (k *known) add(downstream string, ref retrysafe.Ref) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.young[downstream]; ok {
		return
	}
	if k.young == nil || len(k.young) >= maxKnown {
		k.young, k.old = make(map[string]retrysafe.Ref), k.young
	}
	k.young[downstream] = retrysafe.Ref{Scope: strings.Clone(ref.Scope), Key: strings.Clone(ref.Key)}
}

func (k *known) find(downstream string) (retrysafe.Ref, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ref, ok := k.young[downstream]
	if !ok {
		ref, ok = k.old[downstream]
	}
	return ref, ok
}

// Observe implements [retrysafe.Observer]. If the intake is told the events of the engine
// that holds the keys, it finds the keys of this process by their downstream keys
// without a search, also when they are settled. Without [Options.DownstreamKeys] it does
// nothing.
func (in *Intake) Observe(e retrysafe.Event) {
	if in.o.DownstreamKeys == nil || e.Ref.IsSystem() {
		return
	}
	switch e.Kind {
	case retrysafe.EventReserved, retrysafe.EventRetried, retrysafe.EventAccepted:
		for _, downstream := range in.o.DownstreamKeys(e.Ref) {
			in.known.add(downstream, e.Ref)
		}
	default: // the key was observed when it was reserved
	}
}

package httpkey

import (
	"net/http"

	"github.com/retrysafe/retrysafe"
)

// A Fate is what became of a request at a guard.
type Fate struct {
	// Ref is the request's key, as far as it could be read.
	Ref retrysafe.Ref
	// Code is [FateRan], [FateReplay], or the code of the problem that the request was
	// refused with. It is in-flight for a request that was accepted, and empty for one
	// that passed without a key.
	Code string
	// Enforced is false in observe mode: the handler ran all the same.
	Enforced bool
}

// Codes of a [Fate] that are no problems.
const (
	FateRan    = "ran"
	FateReplay = "replay"
)

// reportDisposition calls [Options.Fate].
func (g *Guard) reportDisposition(r *http.Request, ref retrysafe.Ref, code string) {
	if g.o.Fate != nil {
		g.o.Fate(r, Fate{Ref: ref, Code: code, Enforced: !g.o.Observe})
	}
}

package httpkey

import (
	"net/http"

	"github.com/retrysafe/retrysafe"
)

// A Disposition is what became of a request at a guard.
type Disposition struct {
	// Ref is the request's key, as far as it could be read.
	Ref retrysafe.Ref
	// Code is [DispositionRan], [DispositionReplay], or the code of the problem that the request was
	// refused with. It is in-flight for a request that was accepted, and empty for one
	// that passed without a key.
	Code string
	// Enforced is false in observe mode: the handler ran all the same.
	Enforced bool
}

// Codes of a [Disposition] that are no problems.
const (
	DispositionRan    = "ran"
	DispositionReplay = "replay"
)

// reportDisposition calls [Options.Disposition].
func (g *Guard) reportDisposition(r *http.Request, ref retrysafe.Ref, code string) {
	if g.o.Disposition != nil {
		g.o.Disposition(r, Disposition{Ref: ref, Code: code, Enforced: !g.o.Observe})
	}
}

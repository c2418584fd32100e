package httpkey

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Notice is a request that a guard refused or doubted or, in observe mode, would
// have refused or replayed.
type Notice struct {
	// Code is the problem's code, or "replay".
	Code string
	// Operation is that of the request.
	Operation string
	// KeyHash identifies the key without revealing it. Empty if there was none.
	KeyHash string
	// Enforced is false in observe mode and for warnings: the handler ran all the same.
	Enforced bool
}

// refuse sends a refusal, counts and reports it.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, key string, re refusal) {
	g.report(re.code, r, key, true)
	g.write(w, re)
}

func (g *Guard) report(code string, r *http.Request, key string, enforced bool) uint64 {
	n := g.counts.add(code, enforced)
	if g.o.Report != nil {
		g.o.Report(Notice{Code: code, Operation: g.operation(r), KeyHash: retrysafe.HashKey(key), Enforced: enforced})
	}
	return n
}

// warn reports a doubtful key that is let pass, and logs it at most once a second.
func (g *Guard) warn(r *http.Request, key string, p *problem) {
	if g.report(p.code, r, key, false)%1000 == 1 {
		g.o.Logger.Warn("retrysafe: "+p.title, "code", p.code, "advice", p.detail)
	}
}

// Counts returns how often each problem was found: "code" for those that were
// enforced, "code (observed)" for those that were not.
func (g *Guard) Counts() map[string]uint64 {
	all := make(map[string]uint64)
	g.counts.each.Range(func(name, n any) bool {
		all[name.(string)] = n.(*atomic.Uint64).Load()
		return true
	})
	return all
}

// counts are the counters of the problems, one for each.
type counts struct {
	each   sync.Map
	logged atomic.Int64 // the second in which occasionally last called its function
}

// occasionally calls log at most once a second, for warnings that each request would
// repeat while something is wrong.
func (c *counts) occasionally(say func()) {
	now := time.Now().Unix()
	if last := c.logged.Load(); last != now && c.logged.CompareAndSwap(last, now) {
		say()
	}
}

func (c *counts) add(code string, enforced bool) uint64 {
	if !enforced {
		code += " (observed)"
	}
	n, ok := c.each.Load(code)
	if !ok {
		n, _ = c.each.LoadOrStore(code, new(atomic.Uint64))
	}
	return n.(*atomic.Uint64).Add(1)
}

// explain turns the engine's error into a refusal.
func (g *Guard) explain(r *http.Request, key string, err error) refusal {
	var busy *busyError
	if errors.As(err, &busy) {
		return busy.refusal()
	}
	var refused *retrysafe.RefusedError
	var wait time.Duration
	if errors.As(err, &refused) {
		wait = refused.RetryAfter
	}
	re := refusal{retryAfter: max(wait, time.Second)}
	switch {
	case errors.Is(err, retrysafe.ErrMismatch):
		return refusal{problem: keyReused}
	case errors.Is(err, retrysafe.ErrGone):
		return refusal{problem: keyGone}
	case errors.Is(err, retrysafe.ErrAccepted), errors.Is(err, retrysafe.ErrInFlight) && g.accepts():
		re.problem = stillRunning
		if g.o.StatusURL != nil {
			re.location = g.o.StatusURL(r, key)
		}
	case errors.Is(err, retrysafe.ErrInFlight):
		re.problem = inFlight
	case errors.Is(err, retrysafe.ErrUnknown):
		re.problem = outcomeUnknown
	case errors.Is(err, retrysafe.ErrUnreadable):
		re.problem = recordUnreadable
		g.counts.occasionally(func() {
			g.o.Logger.Error("retrysafe: request was not executed: the record of its key cannot be read", "operation", g.operation(r), "key", retrysafe.HashKey(key), "error", err,
				"fix", "if a newer version of retrysafe shares this store, upgrade this one; if Include, Exclude or FingerprintHeaders were changed, name the former lists in FormerFields; otherwise the record is damaged, or made under a secret that is not configured")
		})
	case errors.Is(err, errTooManyKeys):
		re.problem = tooManyKeys
	case errors.Is(err, errTooManyActive):
		re.problem = tooManyActive
	case errors.Is(err, errTooManyLookups):
		re.problem = tooManyLookups
	default: // the store does not answer, or the client has disconnected
		re.problem = storeUnavailable
		g.counts.occasionally(func() {
			g.o.Logger.Warn("retrysafe: request was not executed", "operation", g.operation(r), "key", retrysafe.HashKey(key), "error", err)
		})
	}
	return re
}

package field

import (
	"context"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// Small returns the check of that name at a size for tests, and smaller still over
// nodeCount with a flaw, if that is not empty.
func Small(name, flaw string) prove.Check {
	s, h, k := &storm{rounds: 4, requests: 60, keys: 24, duplicates: 6}, &haunting{rounds: 2}, &killing{kills: 6, clients: 8}
	w := &waiting{rounds: 2, limit: waitLimit}
	if flaw != "" {
		w = &waiting{rounds: 1, limit: 2 * time.Second, flaw: flaw}
		s, h, k = &storm{rounds: 1, requests: 12, keys: 8, duplicates: 6, flaw: flaw}, &haunting{rounds: 1, flaw: flaw}, &killing{kills: 6, clients: 8, flaw: flaw}
	}
	run := map[string]func(context.Context, *prove.Env, *prove.Result) error{"storm": s.run, "zombie": h.run, "wait": w.run, "kill": k.run}[name]
	for _, c := range Checks() {
		if c.Name == name {
			c.Run = run
			return c
		}
	}
	return prove.Check{}
}

package gateway

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/daily"
	"github.com/retrysafe/retrysafe/console"
	"github.com/retrysafe/retrysafe/janitor"
)

// facts returns what the pages of the console show about this process.
func (b *builder) facts(c *config.Config, g *gateway.Gateway) console.Facts {
	f := console.Facts{
		LastHour: b.lastHour,
		Today: func() console.Today {
			return console.Today{Prevented: b.metrics.PreventedToday(), Contradicted: b.metrics.ContradictedToday(), Lost: b.metrics.LostToday()}
		},
		Checks:     func(context.Context) []console.Check { return checks(g) },
		LookedInto: gateway.LookedInto(c),
		Config: func() string {
			text, err := c.Print()
			if err != nil {
				return "it cannot be printed: " + err.Error()
			}
			return string(text)
		},
	}
	if c.Admin.Proof != "" {
		f.Proof = func(context.Context) ([]byte, error) { return readProof(c.Admin.Proof) }
	}
	if len(c.Ledger) > 0 {
		f.Reports = func(context.Context) ([]console.Report, error) { return reports(g.Ledgers()), nil }
	}
	return f
}

// maxProof bounds the report of a proof. One with every check has some hundred kilobytes.
const maxProof = 16 << 20

// readProof reads the report that the console shows. It is read each time, so that a new
// report needs no reload.
func readProof(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxProof+1))
	if err == nil && len(text) > maxProof {
		err = fmt.Errorf("%s is larger than %d bytes: it is not the report of retrysafe prove", path, maxProof)
	}
	return text, err
}

// lastHour returns the outcomes of the last hour in this process.
func (b *builder) lastHour() []console.Minute {
	var all []console.Minute
	for _, m := range b.metrics.LastHour() {
		all = append(all, console.Minute(m))
	}
	return all
}

// checks returns the health of the store and of background duties.
func checks(g *gateway.Gateway) []console.Check {
	store := console.Check{Name: "store", Level: "ok", Text: "answers, and requests are let in"}
	if err := g.Ready(); err != nil {
		store.Level, store.Text = "bad", err.Error()
	}
	all := []console.Check{store}
	if sweeper, reaper := g.Janitor(); sweeper != nil {
		all = append(all, dutyCheck("sweeper", sweeper.Stats().Passes, sweeper.Schedule().Every))
		if reaper != nil {
			all = append(all, dutyCheck("reaper", reaper.Stats().Passes, reaper.Schedule().Every))
		}
	} else {
		all = append(all, console.Check{Name: "sweeper and reaper", Level: "none", Text: "switched off in this process; another one must run them"})
	}
	reconciler := g.Reconciler()
	if reconciler == nil {
		return append(all, console.Check{Name: "reconciler", Level: "none", Text: "no resolver runs in this process; unknown outcomes need a webhook or a person"})
	}
	stats := reconciler.Stats()
	check := dutyCheck("reconciler", stats.Passes, reconciler.Schedule().Every)
	if stats.Open > 0 {
		check.Level, check.Text = "warn", fmt.Sprintf("resolvers that failed too often and are not asked now: %d", stats.Open)
	}
	return append(all, check)
}

// dutyCheck returns the health of a duty by its last pass. It is silent if three passes are
// missing.
func dutyCheck(name string, p janitor.Passes, every time.Duration) console.Check {
	c := console.Check{Name: name, Level: "ok"}
	ago := time.Since(p.Finished)
	switch {
	case p.Finished.IsZero() && p.Failures == 0:
		c.Level, c.Text = "none", "its first pass has not ended yet"
	case p.Finished.IsZero():
		c.Level, c.Text = "bad", fmt.Sprintf("no pass has succeeded; %d failed", p.Failures)
	case every > 0 && ago > max(3*every, time.Minute):
		c.Level, c.Text = "bad", fmt.Sprintf("no pass has succeeded for %v; %d of %d failed", ago.Round(time.Second), p.Failures, p.Passes)
	default:
		c.Text = fmt.Sprintf("last pass %v ago; %d passes, %d failed", ago.Round(time.Second), p.Passes, p.Failures)
	}
	return c
}

// reports returns the latest comparison of each ledger.
func reports(ledgers []daily.Stats) (all []console.Report) {
	for _, s := range ledgers {
		r := console.Report{Ledger: s.Name, Day: s.Last.Day, Ended: s.Last.Ended}
		if !s.Last.Ended.IsZero() {
			r.Differences = map[string]int64{}
			for kind, n := range s.Last.Summary.Counts() {
				r.Differences[kind.String()] = n
			}
		}
		if s.Failed > 0 && s.Tried.After(s.Last.Ended) {
			r.Err = "the last attempt of this process failed; its log has the reason"
		}
		all = append(all, r)
	}
	return all
}

package gateway

import (
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/daily"
)

// makeLedgers has ledgers compared when their days are over.
func (g *Gateway) makeLedgers(c *config.Config, _ *Parts) error {
	var jobs []*daily.Job
	for i := range c.Ledger {
		j, err := daily.NewJob(&c.Ledger[i])
		if err != nil {
			return err
		}
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		return nil
	}
	var err error
	if g.ledgers, err = daily.New(g.store, jobs, g.logger); err != nil {
		return err
	}
	g.duties = append(g.duties, g.ledgers.Run)
	return nil
}

// Ledgers returns what is known of each ledger that is compared here.
func (g *Gateway) Ledgers() []daily.Stats {
	if g.ledgers == nil {
		return nil
	}
	return g.ledgers.Stats()
}

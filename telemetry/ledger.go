package telemetry

import "time"

// LedgerStats are what is known of one ledger that is compared day by day.
type LedgerStats struct {
	// Name is the ledger's, from the configuration.
	Name string
	// Compared and Failed count the comparisons of this process.
	Compared, Failed uint64
	// LastRun is when this process last ended one. LastSuccess is when the latest day was
	// compared, by any process. Zero is never.
	LastRun, LastSuccess time.Time
	// Differences are those of the latest day, by kind.
	Differences map[string]int64
}

// Ledgers adds the comparisons of ledgers as a source. Nil adds none.
func (m *Metrics) Ledgers(read func() []LedgerStats) (forget func()) {
	if read == nil {
		return func() {}
	}
	since := time.Now()
	return m.pull.watch(
		func(r reading) {
			for _, s := range read() {
				name := label(s.Name)
				r.add(ledgerRuns, float64(s.Compared), name, "compared")
				r.add(ledgerRuns, float64(s.Failed), name, "failed")
			}
		},
		func(r reading) {
			for _, s := range read() {
				name := label(s.Name)
				r.add(ledgerLastRun, timestamp(s.LastRun, since), name)
				r.add(ledgerLastSuccess, timestamp(s.LastSuccess, since), name)
				for kind, n := range s.Differences {
					r.add(ledgerDifferences, float64(n), name, label(kind))
				}
			}
		})
}

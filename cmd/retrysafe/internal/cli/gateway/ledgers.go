package gateway

import (
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/daily"
	"github.com/retrysafe/retrysafe/telemetry"
)

// ledgerStats returns what is known of ledgers as metrics have it. Before the first day was
// compared no difference is known, not even that there is none.
func ledgerStats(all []daily.Stats) []telemetry.LedgerStats {
	stats := make([]telemetry.LedgerStats, len(all))
	for i, s := range all {
		stats[i] = telemetry.LedgerStats{Name: s.Name, Compared: s.Compared, Failed: s.Failed, LastRun: s.Tried, LastSuccess: s.Last.Ended}
		if s.Last.Ended.IsZero() {
			continue
		}
		stats[i].Differences = map[string]int64{}
		for kind, n := range s.Last.Summary.Counts() {
			stats[i].Differences[kind.String()] = n
		}
	}
	return stats
}

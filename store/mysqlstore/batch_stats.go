package mysqlstore

import "github.com/retrysafe/retrysafe/store/storekit"

// BatchStats returns how much the store's own steps share round trips and commits.
// Transactions of the caller's are not counted.
func (s *Store) BatchStats() (all storekit.BatchStats) {
	all.Add(s.batches.batcher.Stats())
	return all
}

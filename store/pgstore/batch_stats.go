package pgstore

import "github.com/retrysafe/retrysafe/store/storekit"

// BatchStats returns how much the store's own steps share round trips and commits.
// Transactions of the caller's are not counted.
func (s *Store) BatchStats() (all storekit.BatchStats) {
	all.Add(s.reserves.batcher.Stats())
	all.Add(s.relaxed.batcher.Stats())
	all.Add(s.settles.batcher.Stats())
	all.Add(s.largeReserves.batcher.Stats())
	all.Add(s.largeSettles.batcher.Stats())
	all.Add(s.reads.batcher.Stats())
	return all
}

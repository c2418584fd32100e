package sqlitestore

import "github.com/retrysafe/retrysafe/store/storekit"

// BatchStats returns how much the store's own steps share commits. Transactions of the
// caller's are not counted.
func (s *Store) BatchStats() (all storekit.BatchStats) {
	all.Add(s.deferred.Stats())
	all.Add(s.immediate.Stats())
	return all
}

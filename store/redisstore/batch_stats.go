package redisstore

import "github.com/retrysafe/retrysafe/store/storekit"

// BatchStats returns how much the store's steps share round trips, over all nodes.
func (s *Store) BatchStats() (all storekit.BatchStats) {
	for _, n := range s.topology.all() {
		all.Add(n.begins.Stats())
		all.Add(n.swaps.Stats())
	}
	return all
}

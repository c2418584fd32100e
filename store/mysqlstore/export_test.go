package mysqlstore

import "github.com/retrysafe/retrysafe"

// ID returns what the row of a ref is found by.
func ID(ref retrysafe.Ref) []byte { return idOf(ref) }

// Several reports whether the store's connections take several statements in one round
// trip.
func (s *Store) Several() bool { return s.steps.several }

package dynamostore

import (
	"time"

	"github.com/retrysafe/retrysafe"
)

// SetLocal replaces the node's clock.
func (s *Store) SetLocal(now func() time.Time) { s.clock.local = now }

// ID is the id of a key's item.
func ID(ref retrysafe.Ref) []byte { return idOf(ref) }

// AttemptAttribute is the attribute that a Swap without Overwrite leaves alone.
const AttemptAttribute = attrAttempt

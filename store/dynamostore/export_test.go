package dynamostore

import (
	"time"

	"github.com/retrysafe/retrysafe"
)

// SetLocal replaces the node's clock.
func (s *Store) SetLocal(now func() time.Time) { s.clock.local = now }

// SetTimeout sets how long the first try of a request may take.
func (s *Store) SetTimeout(d time.Duration) { s.timeout = d }

// SetLease sets how long the permit that the store has lasts.
func (s *Store) SetLease(d time.Duration) {
	g := *s.permit.last.Load()
	g.lease = d
	s.permit.last.Store(&g)
}

// ID is the id of a key's item.
func ID(ref retrysafe.Ref) []byte { return idOf(ref) }

// AttemptAttribute is the attribute that a Swap without Overwrite leaves alone.
const AttemptAttribute = attrAttempt

package sweep

import (
	"errors"
	"sync"

	"github.com/retrysafe/retrysafe"
)

// seen is what a store has told one node: whose reservations it has confirmed. What
// runs without one breaks S8.
type seen struct {
	mu       sync.Mutex
	owners   map[retrysafe.Owner]bool
	reserved bool // the transaction that was begun last has its key
	entered  int  // operations that ran
	wrong    []string
}

func newSeen() *seen { return &seen{owners: map[retrysafe.Owner]bool{}} }

// record takes in a record that the node was shown.
func (s *seen) record(r *retrysafe.Record) {
	if r.State != retrysafe.StateInProgress {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners[r.Owner] = true
}

func (s *seen) begins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved = false
}

func (s *seen) reserves(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved = err == nil || errors.Is(err, retrysafe.ErrNotFound)
}

// enters is called by an operation that runs under an execution.
func (s *seen) enters(x *retrysafe.Execution) {
	owner := x.Record().Owner
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entered++; !s.owners[owner] {
		s.wrong = append(s.wrong, "an operation ran whose reservation the store has not confirmed")
	}
}

// entersTx is called by an operation that runs in a transaction that has the key.
func (s *seen) entersTx() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entered++; !s.reserved {
		s.wrong = append(s.wrong, "an operation ran in a transaction that did not have its key")
	}
}

func (s *seen) wrongs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrong
}

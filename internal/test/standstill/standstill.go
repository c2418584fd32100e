// Package standstill lets a child process stand still, for as long as it takes others to
// think it dead. The process does not notice.
package standstill

import (
	"fmt"
	"os"
)

// Begin stops a child and returns when it has stopped. A signal alone does not do that:
// until one of the child's threads comes to read it, the others run on, and on a busy
// machine that is long enough to receive an answer and act on it.
func Begin(child *os.Process) error {
	if err := stop(child); err != nil {
		return fmt.Errorf("standstill: stop %d: %w", child.Pid, err)
	}
	return nil
}

// End lets the child go on.
func End(child *os.Process) error {
	if err := resume(child); err != nil {
		return fmt.Errorf("standstill: resume %d: %w", child.Pid, err)
	}
	return nil
}

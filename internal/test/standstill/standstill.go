// Package standstill stops a child process, for as long as it takes other processes to
// consider it dead. The child does not notice.
package standstill

import (
	"fmt"
	"os"
)

// Begin stops a child and returns when it has stopped. Sending the signal alone is not
// enough: until one of the child's threads handles it, the others run on, and on a busy
// machine that is long enough to receive an answer and act on it.
func Begin(child *os.Process) error {
	if err := stop(child); err != nil {
		return fmt.Errorf("standstill: stop %d: %w", child.Pid, err)
	}
	return nil
}

// End continues the child.
func End(child *os.Process) error {
	if err := resume(child); err != nil {
		return fmt.Errorf("standstill: resume %d: %w", child.Pid, err)
	}
	return nil
}

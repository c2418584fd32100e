//go:build unix

package standstill

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

func stop(child *os.Process) error {
	if err := child.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(child.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case status.Stopped():
			return nil
		default:
			return fmt.Errorf("it has ended, with wait status %#x", int(status))
		}
	}
}

func resume(child *os.Process) error { return child.Signal(syscall.SIGCONT) }

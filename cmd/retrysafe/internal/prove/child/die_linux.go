package child

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child when the thread that started it
// ends; the Go runtime keeps that thread unless its goroutine was locked to it.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

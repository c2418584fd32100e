package testservers

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// headless tells this binary to end its first thread and to live on.
const headless = "TESTSERVERS_END_THE_FIRST_THREAD"

func init() {
	if os.Getenv(headless) == "" {
		return
	}
	runtime.LockOSThread() // in an init function, this is the first thread
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

// A killed server with many threads may still listen when its first thread has ended.
func TestAProcessIsGoneWithItsLastThread(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), headless+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // as in runChild
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	process, ok := readTask(cmd.Process.Pid)
	if !ok {
		t.Fatal("the process cannot be read")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll(ctx, func() (bool, error) {
		now, _ := readTask(process.pid)
		return now.state == 'Z', nil
	}); err != nil {
		t.Fatalf("wait for the end of the first thread: %v", err)
	}
	if process.gone() {
		t.Error("a process is called gone while it has threads")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := poll(ctx, func() (bool, error) { return process.gone(), nil }); err != nil {
		t.Errorf("a killed process that has not been waited for is not called gone: %v", err)
	}
}

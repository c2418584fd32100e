package exit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
)

func TestErrorsSayNothingTwice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"pgstore: open: open: no":                          "open: no",
		"operator: retrysafe: no such key":                 "no such key",
		"failed: a (b): dial: no c\n\ta (b): dial: no c":   "failed: a (b): dial: no c",
		"one two one two":                                  "one two one two",
		"1 2 3 1 2 3 1 2 3 4":                              "1 2 3 4",
		"encryption: sealed: keys file: \"keys\" has none": "encryption: keys file: \"keys\" has none",
	} {
		if got := exit.Plain(errors.New(text)); got != want {
			t.Errorf("%q is said as %q, want %q", text, got, want)
		}
	}
}

// An error has the exit code that it was given, or that of what has happened.
func TestCodesOfErrors(t *testing.T) {
	t.Parallel()
	listen := func(why syscall.Errno) error {
		return exit.Errorf(exit.Failed, "serve: %v", &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", why)})
	}
	for _, c := range []struct {
		err  error
		code exit.Code
		line string
	}{
		{exit.Errorf(exit.Store, "open %s: %v", "x", errors.New("no")), exit.Store, "retrysafe: open x: no"},
		{exit.Errorf(exit.Store, "open: %v", context.Canceled).Hintf("try again"), exit.Interrupted, "retrysafe: interrupted: open: context canceled; try again"},
		{exit.Errorf(exit.Store, "open: %v", context.DeadlineExceeded), exit.Store, "retrysafe: open: context deadline exceeded"},
		{exit.Wrap(errors.New("no\nspace")), exit.Failed, "retrysafe: no space"},
		{exit.Wrap(fmt.Errorf("run: %w", exit.Errorf(exit.No, "refused"))), exit.No, "retrysafe: refused"},
		{errors.New("unknown flag"), exit.Usage, "retrysafe: unknown flag; see retrysafe keys --help"},
		{exit.Silent(exit.No), exit.No, ""},
		{exit.Problems(errors.New("a"), []string{"line 1", "line 2"}).Hintf("see docs"), exit.Usage, "retrysafe: line 1\nretrysafe: line 2; see docs"},
		{listen(syscall.EADDRINUSE), exit.Failed, "another process listens there"},
		{listen(syscall.EACCES), exit.Failed, "a port below 1024"},
		{listen(syscall.EADDRNOTAVAIL), exit.Failed, "this machine does not have that address"},
	} {
		e := exit.Of(c.err, "retrysafe keys")
		if got := strings.Join(e.Lines(), "\n"); e.Code != c.code || got != c.line && (c.line == "" || strings.HasPrefix(c.line, "retrysafe: ") || !strings.Contains(got, c.line)) {
			t.Errorf("%v: exit code %d, %q, want %d, %q", c.err, e.Code, got, c.code, c.line)
		}
	}
	if exit.Wrap(nil) != nil {
		t.Error("no error is wrapped")
	}
}

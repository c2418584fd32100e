package main_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	main "github.com/retrysafe/retrysafe/examples/payments"
)

const mainVariable = "PAYMENTS_TEST_MAIN"

// TestMain lets the test be the program, too, and its nodes.
func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main.Main()
	}
	m.Run()
}

func TestSignalEndsItInOrder(t *testing.T) {
	t.Parallel()
	for _, nodes := range []string{"1", "2"} {
		t.Run(nodes, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-listen", "127.0.0.1:0", "-nodes", nodes)
			cmd.Env = append(os.Environ(), mainVariable+"=1", "TMPDIR="+t.TempDir())
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			said := bufio.NewReader(out)
			for line := ""; !strings.Contains(line, `"none"`); {
				if line, err = said.ReadString('\n'); err != nil {
					t.Fatalf("it did not start: %v", cmd.Wait())
				}
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(said)
			if err := cmd.Wait(); err != nil || !strings.HasSuffix(string(rest), "payments: stopped in order\n") {
				t.Errorf("it ended with %v and said %q", err, rest)
			}
			left, err := os.ReadDir(strings.TrimPrefix(cmd.Env[len(cmd.Env)-1], "TMPDIR="))
			if err != nil || len(left) > 0 {
				t.Errorf("it left %v behind: %v", left, err)
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"-port 80", 2, "-port"},
		{"-listen 8080", 2, "missing port"},
		{"-listen 127.0.0.1:65530", 2, "the port is not between"},
		{"-nodes 11", 2, "not between 1 and 10"},
		{"-nodes -1", 2, "not between 1 and 10"},
		{"-store redis://localhost", 2, "shares its transactions"},
		{"-store memory:", 2, "shares its transactions"},
		{"-store sqlite:", 2, "needs a file"},
		{"8080", 2, "too many"},
		{"-store sqlite:/there/is/no/such/folder/payments.db", 1, "no folder"},
		{"-node", 1, "not by hand"},
	} {
		var stdout, stderr strings.Builder
		code := main.Run(t.Context(), strings.Fields(c.args), strings.NewReader(""), &stdout, &stderr)
		if code != c.code || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), c.says) || stdout.Len() > 0 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q; want %d and one line about %q", c.args, code, &stdout, &stderr, c.code, c.says)
		}
	}
	var stdout, stderr strings.Builder
	if code := main.Run(t.Context(), []string{"-h"}, nil, &stdout, &stderr); code != 0 || !strings.HasPrefix(stdout.String(), "usage:") {
		t.Errorf("-h: exit code %d, stdout %q, stderr %q", code, &stdout, &stderr)
	}
}

package demo_test

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

var curlLines = regexp.MustCompile(`(?m)^# (\d+).*\n(curl .*)$`)

// The first three lines that the demo prints show: run, replay, 422. They are run by
// a shell, as they are.
func TestDemoPrintsWhatToTry(t *testing.T) {
	t.Parallel()
	p := clitest.Start(t, "demo", "--listen", "127.0.0.1:0")
	p.Until(`"none"`)
	lines := curlLines.FindAllStringSubmatch(p.Output.String(), -1)
	if len(lines) < 3 {
		t.Fatalf("it prints %d lines to try:\n%s", len(lines), &p.Output)
	}
	var bodies []string
	for i, want := range []string{"201", "201", "422"} {
		if lines[i][1] != want {
			t.Errorf("line %d promises %s, want %s", i+1, lines[i][1], want)
		}
		out, err := exec.CommandContext(t.Context(), "bash", "-c", lines[i][2]).Output()
		clitest.Must(t, err)
		head, body, _ := strings.Cut(string(out), "\r\n\r\n")
		bodies = append(bodies, body)
		if !strings.HasPrefix(head, "HTTP/1.1 "+want) || strings.Contains(head, "Idempotent-Replayed: true") != (i == 1) {
			t.Errorf("line %d\n%s\ngets\n%s", i+1, lines[i][2], out)
		}
	}
	if bodies[0] != bodies[1] {
		t.Errorf("the replay is\n%s\nand the answer was\n%s", bodies[1], bodies[0])
	}
	p.Stop(0).Says("stopped in order")
	if left, err := os.ReadDir(p.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("it left %v behind: %v", left, err)
	}
}

// The demo takes the URLs that every command takes.
func TestDemoRefusesBadStores(t *testing.T) {
	t.Parallel()
	here := clitest.NewShell(t, "")
	here.RunArgs("demo", "--store", "postgres://u:se cret@h/db").Exits(2).Says("%40").InOneLine()
	here.RunArgs("demo", "--store", "sqlite:").Exits(2).Says("needs a file").InOneLine()
	here.RunArgs("demo", "--store", "memory:").Exits(2).Says("shares its transactions").InOneLine()
}

// An address that is taken or wrong is named with the flag that gives it.
func TestDemoNamesTheFlagOfAnAddress(t *testing.T) {
	t.Parallel()
	busy, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	clitest.Must(t, err)
	defer busy.Close()
	here := clitest.NewShell(t, "")
	for _, flag := range []string{"--listen", "--provider", "--console"} {
		args := map[string]string{"--listen": "127.0.0.1:0", "--provider": "127.0.0.1:0", "--console": "off"}
		args[flag] = busy.Addr().String()
		line := []string{"demo"}
		for name, value := range args {
			line = append(line, name, value)
		}
		here.RunArgs(line...).Exits(5).Says("address already in use", "another address with "+flag)
		here.RunArgs("demo", flag, "127.0.0.1:99999").Exits(2).Says(flag[2:] + ": address 127.0.0.1:99999").InOneLine()
	}
}

// Two nodes are two processes over one store: one is killed, the other answers with
// the same bytes. What is left is seen by operators.
func TestDemoOfTwoNodes(t *testing.T) {
	t.Parallel()
	store := "sqlite:" + filepath.Join(t.TempDir(), "demo.db")
	p := clitest.Start(t, "demo", "--listen", "127.0.0.1:0", "--nodes", "2", "--store", store)
	p.Until(`"none"`)
	nodes := regexp.MustCompile(`node \d on (\S+) \(process (\d+)\)`).FindAllStringSubmatch(p.Output.String(), -1)
	pay := func(node string) (int, string) {
		t.Helper()
		return clitest.Post(t, node+"/payments", "demo-a", "one-payment-of-two-nodes", `{"amount": 1200, "currency": "EUR", "account_id": 1}`)
	}
	status, body := pay(nodes[0][1])
	pid, err := strconv.Atoi(nodes[0][2])
	clitest.Must(t, err)
	if pid == p.Cmd.Process.Pid || status != http.StatusCreated {
		t.Fatalf("node 1 is process %d of %d, and answered %d", pid, p.Cmd.Process.Pid, status)
	}
	clitest.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	p.Until("node 1 has ended by itself")
	if again, same := pay(nodes[1][1]); again != status || same != body {
		t.Errorf("node 2 answers %d %s, and node 1 had %d %s", again, same, status, body)
	}
	clitest.NewShell(t, store).Run("keys list").Exits(0).Says("tenant-a", "one-payment-of-two-nodes", "completed")
	p.Stop(0)
}

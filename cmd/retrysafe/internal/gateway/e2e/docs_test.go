package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/pages"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// A block is a fenced one of a page.
type block struct {
	line       int
	kind, text string
}

func blocksOf(t *testing.T, page string) (blocks []block) {
	t.Helper()
	text := pages.Read(t, "docs/"+page)
	var open *block
	for i, line := range strings.Split(text, "\n") {
		kind, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{line: i + 1, kind: kind}
		case fence:
			blocks, open = append(blocks, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return blocks
}

// The tutorial is done as a reader does it: in an empty folder, in one shell, one
// block after the other. What follows a block as text is what it printed; … stands
// for what differs each time.
func TestDocsTutorial(t *testing.T) {
	t.Parallel()
	command := built(t)
	ports := strings.NewReplacer("127.0.0.1:8080", porthold.Lent(t), "127.0.0.1:8081", porthold.Lent(t), "127.0.0.1:9000", porthold.Lent(t))
	var script strings.Builder
	script.WriteString("exec 2>&1\ntrap 'kill -9 $(jobs -p) 2>/dev/null' EXIT\n")
	blocks := blocksOf(t, "gateway.md")
	var run []int
	for i, b := range blocks {
		if b.kind == "sh" {
			run = append(run, i)
			fmt.Fprintf(&script, "echo '=== %d'\n%s\n", i, ports.Replace(b.text))
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script.String())
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(command)+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.Output()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it has left in the background
	if err != nil {
		t.Errorf("the shell ended with %v", err)
	}
	printed := string(out)
	for n, i := range run {
		_, rest, found := strings.Cut(printed, fmt.Sprintf("=== %d\n", i))
		if n+1 < len(run) {
			rest, _, _ = strings.Cut(rest, fmt.Sprintf("=== %d\n", run[n+1]))
		}
		if !found {
			t.Fatalf("gateway.md:%d was not run\n%s", blocks[i].line, printed)
		}
		if i+1 < len(blocks) && blocks[i+1].kind == "text" {
			if want := ports.Replace(blocks[i+1].text); !like(strings.ReplaceAll(rest, "\r", ""), want) {
				t.Errorf("gateway.md:%d prints\n%s\nand the page says\n%s", blocks[i].line, rest, want)
			}
		}
	}
}

// like compares line by line; … stands for anything within a line.
func like(got, want string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "…", ".*")
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(strings.TrimSpace(got))
}

// The clients of the page, in three languages, pay through a gateway whose service
// loses half of its first answers: one payment each, and the answer.
func TestDocsClients(t *testing.T) {
	t.Parallel()
	blocks := map[string]string{}
	for _, b := range blocksOf(t, "clients.md") {
		blocks[b.kind] = b.text
	}
	s := newService(t)
	var lost atomic.Int64
	s.before = func(string) {
		// A client tries nine times. Five losses, of all three together, leave it enough.
		if rand.IntN(2) == 0 && lost.Add(1) <= 5 {
			hangUp()
		}
	}
	g := newGateway(t, conf(s, "sqlite:"+filepath.Join(t.TempDir(), "keys.db")))
	url := "http://" + g.addr + "/keyed"
	const body = `{"amount": 1200, "currency": "EUR", "account_id": 1}`
	for language, command := range map[string][]string{
		"sh":         {"bash", "-euc", strings.ReplaceAll(strings.ReplaceAll(blocks["sh"], "http://127.0.0.1:8080/payments", url), "--retry-max-time 600", "--retry-max-time 600 --retry-delay 1")},
		"python":     {"python3", "-c", blocks["python"] + fmt.Sprintf("print(post(%q, b'''%s''', 'a-key-of-a-snake-1', {'Authorization': 'Bearer demo-a', 'Content-Type': 'application/json'})[1].decode())", url, body)},
		"javascript": {"node", "-e", blocks["javascript"] + fmt.Sprintf("post(%q, '%s', 'a-key-of-a-script-1', {Authorization: 'Bearer demo-a', 'Content-Type': 'application/json'}).then((a) => a.text()).then(console.log)", url, body)},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if blocks[language] == "" {
				t.Fatal("the page has no such client")
			}
			cmd := exec.CommandContext(context.WithoutCancel(t.Context()), command[0], command[1:]...)
			cmd.Dir = t.TempDir()
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), `{"payment": `) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	t.Cleanup(func() {
		if _, keys := s.called(body); keys != 3 && !t.Failed() {
			t.Errorf("three clients made %d payments", keys)
		}
	})
}

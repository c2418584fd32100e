package tree_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/retrysafe/retrysafe/internal/test/pages"
)

// Where the README says that its two programs listen: the demo of make run, and the
// program at its top.
const (
	demoServer = "http://127.0.0.1:8080"
	ownServer  = "http://127.0.0.1:8000"
)

// What the README says of a store is what was measured of it last, beside the others.
func TestDocsReadmeHasTheStoresAsMeasured(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile(`(?m)^\| \[?([A-Z][^]|]*)(?:\]\([^)]*\))? \| (yes|no) \| (.*) \|$`)
	measured := make(map[string][]string)
	for _, m := range row.FindAllStringSubmatch(pages.Read(t, "docs/choosing-a-store.md"), -1) {
		measured[m[1]] = append([]string{m[2]}, strings.Split(m[3], " | ")...)
	}
	said := row.FindAllStringSubmatch(pages.Read(t, "README.md"), -1)
	if len(said) < 5 || len(measured) < len(said) {
		t.Fatalf("README.md has %d stores and docs/choosing-a-store.md %d; this test looks in the wrong place", len(said), len(measured))
	}
	for _, m := range said {
		of := measured[m[1]]
		if len(of) < 7 {
			t.Errorf("docs/choosing-a-store.md does not have %s", m[1])
			continue
		}
		const rate = 6 // of new keys, with 256 clients
		want := strings.Join(append(of[:5:5], of[rate]), " | ")
		if got := m[2] + " | " + m[3]; got != want {
			t.Errorf("README.md says of %s\n\t%s\nand docs/choosing-a-store.md\n\t%s", m[1], got, want)
		}
	}
}

// A front page that takes more than a few minutes is not read. Code counts, the lines of
// tables do not.
func TestDocsReadmeIsShort(t *testing.T) {
	t.Parallel()
	const most = 800
	words := 0
	for _, word := range strings.Fields(pages.Read(t, "README.md")) {
		if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			words++
		}
	}
	if words > most {
		t.Errorf("README.md has %d words, want at most %d: move what is not needed on the first page to docs/", words, most)
	}
}

// The Go programs of the README are compiled as a package of this module that
// exists only for this test.
func TestDocsProgramsCompile(t *testing.T) {
	t.Parallel()
	programs := pages.Blocks(pages.Read(t, "README.md"), "go")
	if len(programs) == 0 {
		t.Fatal("README.md has no Go program")
	}
	for i, program := range programs {
		source := buildProgram(t, program, filepath.Join(t.TempDir(), "program"))
		if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", source).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("Go program %d of README.md is not as gofmt has it: %v %s", i+1, err, out)
		}
	}
}

// buildProgram builds a main package from its text, and returns the file that has it.
func buildProgram(t *testing.T, text, to string) (source string) {
	t.Helper()
	dir, here := t.TempDir(), pages.Root(t)
	source, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
	place := filepath.Join(here, "examples", "readme", "main.go")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {place: source}})
	must(t, err)
	must(t, os.WriteFile(source, []byte(text), 0o600))
	must(t, os.WriteFile(overlay, replace, 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", to, filepath.Dir(place))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\nin this program of README.md:\n%s", err, out, text)
	}
	return source
}

// The README's curl commands print what the README says they do, in their order, against
// the program that it shows and the demo that make run starts.
func TestDocsTranscriptIsTrue(t *testing.T) {
	t.Parallel()
	base, stop := startDemo(t)
	counts := transcriptOf(pages.Read(t, "README.md")).replay(t, map[string]string{
		demoServer: base,
		ownServer:  ownProgram(t).start(t),
	})
	if counts[ownServer] < 2 {
		t.Errorf("README.md shows %d curl commands for its own program; a request and its retry belong there", counts[ownServer])
	}
	if counts[demoServer] < 3 {
		t.Errorf("README.md shows %d curl commands for the demo; at least the run, the replay and the mismatch belong there", counts[demoServer])
	}

	// All of them together made one payment.
	rows, _ := curl(t, []string{demoServer + "/ledger?key=8e03978e-40d5-43dd-bc93-6894a57f9324", "-H", "Authorization: Bearer demo-a"},
		map[string]string{demoServer: base})
	var payments []json.RawMessage
	must(t, json.Unmarshal([]byte(rows), &payments))
	if len(payments) != 1 {
		t.Errorf("the demo has %d payments under the key of README.md, want 1: %s", len(payments), rows)
	}
	stop()
}

// The README says that its program can be killed between the request and the retry.
func TestDocsProgramKeepsItsAnswer(t *testing.T) {
	t.Parallel()
	program := ownProgram(t)
	var steps transcript
	for _, step := range transcriptOf(pages.Read(t, "README.md")) {
		if strings.Contains(strings.Join(step.command, " "), ownServer) {
			steps = append(steps, step)
		}
	}
	seen := ids{}
	want := ids{}
	for _, step := range steps {
		base := program.start(t)
		printed, _ := curl(t, step.command[1:], map[string]string{ownServer: base})
		if got, want := strings.Join(seen.normalise(printed), "\n"), strings.Join(want.normalise(step.printed), "\n"); got != want {
			t.Errorf("a program that was killed before each request printed\n%s\nREADME.md says\n%s", got, want)
		}
		program.kill()
	}
}

// untilTestsEnd ends a process with this one, also if this one is killed.
var untilTestsEnd = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

// startDemo starts the demo of make run, and returns where it listens. Stop ends it as
// its user would; the test fails if it does not end in order.
func startDemo(t *testing.T) (base string, stop func()) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "retrysafe")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/retrysafe").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	server := exec.CommandContext(t.Context(), program, "demo", "--listen", "127.0.0.1:0")
	server.Stderr, server.SysProcAttr = t.Output(), untilTestsEnd
	stdout, err := server.StdoutPipe()
	must(t, err)
	must(t, server.Start())
	t.Cleanup(func() { // when the test has failed half-way
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	out := bufio.NewReader(stdout)
	line, err := out.ReadString('\n')
	must(t, err)
	go io.Copy(io.Discard, out)
	return strings.Fields(line)[4], func() {
		must(t, server.Process.Signal(syscall.SIGTERM))
		if err := server.Wait(); err != nil {
			t.Errorf("the demo ended with %v after SIGTERM, want exit code 0", err)
		}
	}
}

// A readmeProgram is the program at the top of the README, built to listen on a port
// that is held for it, in a directory of its own.
type readmeProgram struct {
	path, dir, address string
	cmd                *exec.Cmd
}

func ownProgram(t *testing.T) *readmeProgram {
	t.Helper()
	p := &readmeProgram{path: filepath.Join(t.TempDir(), "program"), dir: t.TempDir(), address: holdPort(t)}
	text := pages.Blocks(pages.Read(t, "README.md"), "go")[0]
	published := strings.TrimPrefix(ownServer, "http://")
	if strings.Count(text, published) != 1 {
		t.Fatalf("the first program of README.md does not listen on %s", published)
	}
	buildProgram(t, strings.Replace(text, published, p.address, 1), p.path)
	t.Cleanup(p.kill)
	return p
}

// start starts the program and returns where it listens, as soon as it does.
func (p *readmeProgram) start(t *testing.T) (base string) {
	t.Helper()
	p.cmd = exec.CommandContext(t.Context(), p.path)
	p.cmd.Dir, p.cmd.Stderr, p.cmd.SysProcAttr = p.dir, t.Output(), untilTestsEnd
	must(t, p.cmd.Start())
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.address)
		if err == nil {
			conn.Close()
			return "http://" + p.address
		}
		if time.Now().After(end) {
			t.Fatalf("the program of README.md does not listen: %v", err)
		}
	}
}

// kill ends the program without a warning.
func (p *readmeProgram) kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// holdPort returns an address of this machine that no other process is given until the
// test ends. Its socket is bound and does not listen, so a program of this test can.
func holdPort(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	must(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	must(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := syscall.Getsockname(fd)
	must(t, err)
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

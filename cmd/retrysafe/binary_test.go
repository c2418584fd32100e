package main_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// What is in the program was put there on purpose: nothing that lets a stranger look
// into a process, or make it fail.
func TestW84_NoDebuggingInTheProgram(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", `{{.ImportPath}} {{.Standard}} {{join .Imports " "}}`, ".").Output()
	clitest.Must(t, err)
	// Prove starts servers and cuts connections, its own. Of failpoints there is but a
	// function that does nothing; the symbols below are those of one that does.
	banned := regexp.MustCompile(`^(net/http/pprof|runtime/trace|testing(/.*)?|.*/gofail.*|.*/internal/test/(faultstore|crashtest))$`)
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if banned.MatchString(words[0]) && words[0] != "runtime/trace" {
			t.Errorf("the program has %s in it", words[0])
		}
		for _, imported := range words[2:] {
			// Prometheus imports it. It registers on the default mux, which is not served.
			if imported == "expvar" && words[0] != "github.com/prometheus/client_golang/prometheus" {
				t.Errorf("%s imports expvar", words[0])
			}
		}
	}
	path := clitest.Binary(t)
	symbols, err := exec.CommandContext(t.Context(), "go", "tool", "nm", path).Output()
	clitest.Must(t, err)
	if found := regexp.MustCompile(`(?m)^.* (net/http/pprof|.*failpoint)\..*$`).Find(symbols); found != nil {
		t.Errorf("the program has the symbol %s", found)
	}
}

// No code of ours serves the default mux, on which imported packages may register.
func TestW84_NobodyServesTheDefaultMux(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", `{{if not .Standard}}{{$d := .Dir}}{{if .Module}}{{if .Module.Main}}{{range .GoFiles}}{{$d}}/{{.}}
{{end}}{{end}}{{end}}{{end}}`, ".").Output()
	clitest.Must(t, err)
	defaults := regexp.MustCompile(`http\.(DefaultServeMux|Handle\(|HandleFunc\(|ListenAndServe|Serve\()`)
	files := 0
	for _, file := range strings.Fields(string(out)) {
		text, err := os.ReadFile(file)
		clitest.Must(t, err)
		files++
		if found := defaults.Find(text); found != nil {
			t.Errorf("%s: %s", file, found)
		}
	}
	if files < 100 {
		t.Errorf("only %d files were looked at", files)
	}
}

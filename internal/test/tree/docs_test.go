package tree_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/pages"
)

// The documents are tested like code: links lead somewhere, tests that are named
// exist, transcripts and examples are what really happens.

// markdown returns every document of the tree by its path.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	walk(t, func(file string) {
		if strings.HasSuffix(file, ".md") {
			docs[file] = pages.Read(t, file)
		}
	})
	return docs
}

func TestDocsLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	docs := markdown(t)
	for file, doc := range docs {
		for _, m := range link.FindAllStringSubmatch(pages.Fence.ReplaceAllString(doc, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			target, anchor, _ := strings.Cut(m[1], "#")
			to := file
			if target != "" {
				to = path.Join(path.Dir(file), target)
			}
			if _, err := os.Stat(filepath.FromSlash(to)); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", file, m[1])
			} else if anchor != "" && !slices.Contains(anchors(docs[to]), anchor) {
				t.Errorf("%s: %s has no heading #%s", file, to, anchor)
			}
		}
	}
}

// anchors returns the names by which the headings of a document are linked to.
func anchors(doc string) []string {
	var found []string
	heading := regexp.MustCompile(`(?m)^#+ (.+)$`)
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range heading.FindAllStringSubmatch(pages.Fence.ReplaceAllString(doc, ""), -1) {
		found = append(found, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return found
}

// A promise that names its test is worth as much as the test, so it must exist.
// A name that ends in an underscore stands for all that begin with it.
func TestDocsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	rule := regexp.MustCompile(`(?m)^\tname: +"([^"]+)",\n\treason:`)
	tests, rules := map[string]bool{}, map[string]bool{}
	walk(t, func(file string) {
		switch {
		case strings.HasSuffix(file, "_test.go"):
			for _, m := range declared.FindAllStringSubmatch(pages.Read(t, file), -1) {
				tests[m[1]] = true
			}
		case path.Dir(file) == "store/storetest":
			for _, m := range rule.FindAllStringSubmatch(pages.Read(t, file), -1) {
				rules[m[1]] = true
			}
		}
	})
	if len(tests) < 10 || len(rules) < 10 {
		t.Fatalf("found %d tests and %d rules of storetest; this test looks in the wrong place", len(tests), len(rules))
	}
	named := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
	ruled := regexp.MustCompile("`storetest:\\s+([^`]+)`")
	for file, doc := range markdown(t) {
		for _, name := range named.FindAllString(doc, -1) {
			begins := strings.HasSuffix(name, "_") && slices.ContainsFunc(slices.Collect(maps.Keys(tests)),
				func(n string) bool { return strings.HasPrefix(n, name) })
			if !tests[name] && !begins {
				t.Errorf("%s: there is no %s in the tree", file, name)
			}
		}
		for _, m := range ruled.FindAllStringSubmatch(doc, -1) {
			if rule := strings.Join(strings.Fields(m[1]), " "); !rules[rule] {
				t.Errorf("%s: storetest has no rule %q", file, rule)
			}
		}
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
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for i, program := range programs {
		dir := t.TempDir()
		source, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
		place := filepath.Join(here, "examples", fmt.Sprintf("readme%d", i), "main.go")
		replace, err := json.Marshal(map[string]map[string]string{"Replace": {place: source}})
		must(t, err)
		must(t, os.WriteFile(source, []byte(program), 0o600))
		must(t, os.WriteFile(overlay, replace, 0o600))
		cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", filepath.Join(dir, "program"), filepath.Dir(place))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("Go program %d of README.md: %v\n%s", i+1, err, out)
		}
		if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", source).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("Go program %d of README.md is not as gofmt has it: %v %s", i+1, err, out)
		}
	}
}

// The README's curl commands run against the demo that make run starts, in their
// order, and print what the README says they do.
func TestDocsTranscriptIsTrue(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "retrysafe")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/retrysafe").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	server := exec.CommandContext(t.Context(), program, "demo", "--listen", "127.0.0.1:0")
	server.Stderr = t.Output()
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
	base := strings.Fields(line)[4]
	go io.Copy(io.Discard, out)

	commands := 0
	for _, block := range pages.Blocks(pages.Read(t, "README.md"), "console") {
		for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want := splitStep(step)
			if command[0] != "curl" {
				t.Errorf("%q: only curl can be held to its word here", command)
				continue
			}
			commands++
			if got := curl(t, command[1:], base); !slices.Equal(got, normalise(want)) {
				t.Errorf("%s\nprinted\n\t%s\nREADME.md says\n\t%s", strings.Join(command, " "),
					strings.Join(got, "\n\t"), strings.Join(normalise(want), "\n\t"))
			}
		}
	}
	if commands < 3 {
		t.Errorf("README.md shows %d curl commands; at least the run, the replay and the mismatch belong there", commands)
	}
	must(t, server.Process.Signal(syscall.SIGTERM))
	if err := server.Wait(); err != nil {
		t.Errorf("the demo ended with %v after SIGTERM, want exit code 0", err)
	}
}

// splitStep returns the words of a command, which may go on behind a backslash,
// and what it prints.
func splitStep(step string) (words []string, output string) {
	word, quote, open := "", byte(0), false
	flush := func() {
		if open {
			words = append(words, word)
		}
		word, open = "", false
	}
	for i := 0; i < len(step); i++ {
		switch c := step[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, open = c, true
		case quote == 0 && c == '\\' && step[i+1] == '\n':
			i++
		case quote == 0 && c == '\n':
			flush()
			return words, step[i+1:]
		case quote == 0 && c == ' ':
			flush()
		default:
			word, open = word+string(c), true
		}
	}
	flush()
	return words, ""
}

// curl does what curl would, and returns what it would print, normalised.
func curl(t *testing.T, args []string, base string) []string {
	t.Helper()
	method, address, body, head := http.MethodGet, "", "", false
	header := http.Header{}
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-i":
			head = true
		case "-H":
			i++
			name, value, _ := strings.Cut(args[i], ":")
			header.Add(name, strings.TrimSpace(value))
		case "-d":
			i++
			method, body = http.MethodPost, args[i]
		default:
			rest, ok := strings.CutPrefix(args[i], "http://127.0.0.1:8080")
			if !ok {
				t.Fatalf("curl %q: this test does not know the option, or the address is not the demo's", args[i])
			}
			address = base + rest
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	must(t, err)
	r.Header = header
	client := http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	res, err := client.Do(r)
	must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(t, err)
	printed := string(text)
	if head {
		printed = dump(res) + printed
	}
	return normalise(printed)
}

// dump returns the head of a response, its headers in order of their names.
func dump(res *http.Response) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", res.Proto, res.Status)
	for _, name := range slices.Sorted(maps.Keys(res.Header)) {
		for _, value := range res.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	return b.String() + "\n"
}

var paymentID = regexp.MustCompile(`pay_[A-Z2-7]{26}`)

// normalise returns what a command printed as lines that compare: headers in
// order, without the values that each run has of its own.
func normalise(printed string) []string {
	printed = paymentID.ReplaceAllString(strings.ReplaceAll(printed, "\r", ""), "pay_...")
	lines := strings.Split(strings.TrimRight(printed, "\n"), "\n")
	if end := slices.Index(lines, ""); strings.HasPrefix(lines[0], "HTTP/") && end > 0 {
		for i, line := range lines[:end] {
			for _, own := range []string{"Date: ", "Idempotency-Expires: "} {
				if strings.HasPrefix(line, own) {
					lines[i] = own + "..."
				}
			}
		}
		slices.Sort(lines[1:end])
	}
	return lines
}

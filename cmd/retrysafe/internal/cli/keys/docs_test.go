package keys_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/internal/test/pages"
)

var shellBlocks = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// Every command of the runbook is run, block by block, on a store after an outage. In
// place of SCOPE and KEY there is a key that the command is for.
func TestDocsEveryCommandOfTheRunbookIsRun(t *testing.T) {
	t.Parallel()
	blocks := shellBlocks.FindAllStringSubmatch(pages.Read(t, "docs/runbook.md"), -1)
	if len(blocks) < 10 {
		t.Fatalf("the runbook has %d blocks of commands; this test looks in the wrong place", len(blocks))
	}
	files := map[string]string{
		"answer.json":    `{"id":"ch_17"}`,
		"retrysafe.yaml": "upstream: http://127.0.0.1:9000\ntenant: bearer\n",
	}
	dir := t.TempDir()
	for name, text := range files {
		files[name] = filepath.Join(dir, name)
		clitest.Must(t, os.WriteFile(files[name], []byte(text), 0o600))
	}
	for i, block := range blocks {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			url, s := clitest.SQLite(t)
			const charges = 5
			afterOutage(t, s.Store, charges)
			clitest.FailedMessages(t, s, "the receiver answered 500")
			for line := range strings.Lines(block[1]) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
				args := clitest.Words(t, line)
				if len(args) == 0 {
					continue
				}
				if args[0] != "retrysafe" {
					t.Fatalf("%q is no command of ours", line)
				}
				if at := slices.Index(args, "SCOPE"); at > 0 {
					key := clitest.Put(t, s.Store, recordFor(args[2], fmt.Sprintf("key-%d", len(line))))
					args[at], args[at+1] = key.Scope, key.Key
				}
				for name, file := range files {
					if at := slices.Index(args, name); at > 0 {
						args[at] = file
					}
				}
				typed := "yes\n"
				if isBulk(args) {
					count := clitest.NewShell(t, url).RunArgs(append(slices.Clone(args[1:]), "--dry-run", "-o", "json")...).Exits(0)
					typed = regexp.MustCompile(`\d+`).FindString(count.Out) + "\n"
				}
				got := clitest.NewShell(t, url).Typing(typed).RunArgs(args[1:]...).Exits(0)
				if isBulk(args) && !slices.Contains(args, "--dry-run") {
					got.Says(" of ", "action ")
				}
			}
		})
	}
}

// isBulk reports whether a command line selects keys by filters.
func isBulk(args []string) bool {
	verb := slices.Contains([]string{"resolve", "decline", "release", "redrive"}, args[2])
	return verb && !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "key-") })
}

// recordFor returns a record that a verb is for. Its operation is one that no filter of
// the runbook selects.
func recordFor(verb, key string) retrysafe.Write {
	r := clitest.Dead("tenant-z", key)
	if verb == "forget" || verb == "erase" {
		r = clitest.Record("tenant-z", key, retrysafe.StateCompleted)
	}
	r.Operation = "POST /others"
	return r
}

// Every alert that we ship has a section in the runbook, which ends in commands.
func TestDocsEveryAlertHasItsCommands(t *testing.T) {
	t.Parallel()
	text := ""
	clitest.Must(t, filepath.WalkDir(pages.Path(t, "deploy"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(path)) {
			return err
		}
		more, err := os.ReadFile(path)
		text += string(more)
		return err
	}))
	alerts := regexp.MustCompile(`(?m)^\s*- alert: (\w+)`).FindAllStringSubmatch(text, -1)
	if len(alerts) < 10 {
		t.Fatalf("there are %d alerts; this test looks in the wrong place", len(alerts))
	}
	runbook := pages.Read(t, "docs/runbook.md")
	var names []string
	for _, a := range alerts {
		names = append(names, a[1])
	}
	for _, name := range names {
		_, section, found := strings.Cut(runbook, "\n### "+name+"\n")
		if !found {
			t.Errorf("docs/runbook.md has no section for the alert %s", name)
			continue
		}
		section, _, _ = strings.Cut(section, "\n##")
		at := shellBlocks.FindAllStringIndex(section, -1)
		if len(at) == 0 || strings.TrimSpace(section[at[len(at)-1][1]:]) != "" {
			t.Errorf("the section of the alert %s does not end in commands", name)
		}
	}
}

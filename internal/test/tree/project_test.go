package tree_test

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/pages"
)

// CONTRIBUTING.md has a line for each package of the module. A line may stand for all
// packages directly below a folder, by a star.
func TestDocsMapOfPackages(t *testing.T) {
	t.Parallel()
	const page = "CONTRIBUTING.md"
	_, section, _ := strings.Cut(pages.Read(t, page), "\n## Map of all packages\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var lines []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)\\|(.*)\\|$").FindAllStringSubmatch(section, -1) {
		lines = append(lines, row[1])
		if strings.TrimSpace(row[2]) == "" || strings.TrimSpace(row[3]) == "" {
			t.Errorf("%s: the line of `%s` does not say what it is and what imports it", page, row[1])
		}
	}
	for _, wrong := range unmapped(lines, packages(t)) {
		t.Errorf("%s: %s", page, wrong)
	}
}

// unmapped returns what is wrong with a map whose lines name these packages.
func unmapped(lines, packages []string) (wrong []string) {
	named := map[string]bool{}
	for _, pkg := range packages {
		star := path.Dir(pkg) + "/*"
		switch {
		case slices.Contains(lines, pkg):
			named[pkg] = true
		case slices.Contains(lines, star):
			named[star] = true
		default:
			wrong = append(wrong, fmt.Sprintf("package %[1]s is not on the map of all packages: add the line\n\t| `%[1]s` | what it is | what imports it |\nto one of its tables, or | `%[2]s` | for all that are directly below", pkg, star))
		}
	}
	for i, line := range lines {
		switch {
		case slices.Contains(lines[:i], line):
			wrong = append(wrong, fmt.Sprintf("`%s` is on the map twice: remove one line", line))
		case !named[line]:
			wrong = append(wrong, fmt.Sprintf("`%s` is on the map, and there is no such package: remove its line", line))
		}
	}
	return wrong
}

// packages returns the folders of all packages of the module, tests and every build tag
// included.
func packages(t *testing.T) []string {
	t.Helper()
	unbuilt := regexp.MustCompile(`(^|/)([._]|testdata/)`) // the go command does not look there
	found := map[string]bool{}
	walk(t, func(file string) {
		if dir := path.Dir(file); strings.HasSuffix(file, ".go") && !unbuilt.MatchString(file) && !inNestedModule(dir) {
			found[dir] = true
		}
	})
	return slices.Sorted(maps.Keys(found))
}

// The map is worth what its checker finds.
func TestDocsMapFindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	there := []string{".", "internal/a", "internal/test/b", "internal/test/c", "store/d"}
	good := []string{".", "internal/a", "internal/test/*", "store/d"}
	if wrong := unmapped(good, there); len(wrong) != 0 {
		t.Errorf("a map that is right is found wanting: %q", wrong)
	}
	if wrong := unmapped(append(good, "internal/test/c"), there); len(wrong) != 0 {
		t.Errorf("a line of its own beside the star of its folder is found wanting: %q", wrong)
	}
	for want, lines := range map[string][]string{
		"add the line\n\t| `store/d` | what it is | what imports it |":                 good[:3],
		"`store/e` is on the map, and there is no such package: remove its line":       append(slices.Clone(good), "store/e"),
		"`outbox/sink/*` is on the map, and there is no such package: remove its line": append(slices.Clone(good), "outbox/sink/*"),
		"`store/d` is on the map twice: remove one line":                               append(slices.Clone(good), "store/d"),
	} {
		if wrong := unmapped(lines, there); len(wrong) != 1 || !strings.Contains(wrong[0], want) {
			t.Errorf("found %q, want %q", wrong, want)
		}
	}
}

// makeTargets returns the targets of the Makefile.
func makeTargets(t *testing.T) []string {
	t.Helper()
	var targets []string
	for _, m := range regexp.MustCompile(`(?m)^\.PHONY: ([a-z-]+)$`).FindAllStringSubmatch(pages.Read(t, "Makefile"), -1) {
		targets = append(targets, m[1])
	}
	return targets
}

func TestDocsMakeTargetsExist(t *testing.T) {
	t.Parallel()
	targets := makeTargets(t)
	named := regexp.MustCompile("(?m)(?:`|^|&& )make ([a-z-]+)\\b")
	found := 0
	for file, doc := range markdown(t) {
		code := strings.Join(regexp.MustCompile("(?s)```.*?```|`[^`]+`").FindAllString(doc, -1), "\n")
		for _, m := range named.FindAllStringSubmatch(code, -1) {
			found++
			if !slices.Contains(targets, m[1]) {
				t.Errorf("%s: the Makefile has no target %s", file, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d make commands on the pages; this test looks in the wrong place", found)
	}
}

// A workflow is what this test reads of a workflow file.
type workflow struct {
	On   map[string]any
	Jobs map[string]struct {
		If        string
		Container string
		Strategy  struct{ Matrix struct{ Go []string } }
		Steps     []struct{ Run, Uses string }
	}
}

// What runs on a change is what the README tells a newcomer to run, on the Go that
// go.mod names; what runs each night is make fresh. Nothing runs only there.
func TestWorkflowRunsTheReadmesCommands(t *testing.T) {
	t.Parallel()
	var ci workflow
	must(t, yaml.Unmarshal([]byte(pages.Read(t, ".github/workflows/ci.yml")), &ci))
	for _, event := range []string{"push", "pull_request", "schedule"} {
		if _, ok := ci.On[event]; !ok {
			t.Errorf("nothing runs on %s", event)
		}
	}
	commands := map[string][]string{}
	for name, job := range ci.Jobs {
		for _, step := range job.Steps {
			switch {
			case step.Run != "":
				commands[name] = append(commands[name], step.Run)
			case !regexp.MustCompile(`^actions/[a-z-]+@v\d+$`).MatchString(step.Uses):
				t.Errorf("job %s uses %q, which is not an action of GitHub's own at a version", name, step.Uses)
			}
		}
	}
	want := map[string][]string{"test": {"scripts/setup", "make test"}, "fresh": {"scripts/setup", "make fresh"}}
	if !maps.EqualFunc(commands, want, slices.Equal) {
		t.Errorf("the workflow runs %q, want %q", commands, want)
	}
	for job, event := range map[string]string{"test": "'pull_request'", "fresh": "'schedule'"} {
		if !strings.Contains(ci.Jobs[job].If, event) {
			t.Errorf("job %s runs if %q, want %s among it", job, ci.Jobs[job].If, event)
		}
	}

	shell := strings.Join(pages.Blocks(pages.Read(t, "README.md"), "sh"), "\n")
	if !regexp.MustCompile(`(?m)^make test\b`).MatchString(shell) || !regexp.MustCompile(`(?m)^make run\b`).MatchString(shell) {
		t.Error("README.md does not show make run and make test")
	}
	for job, run := range commands {
		for _, command := range run {
			if target, ok := strings.CutPrefix(command, "make "); ok && !slices.Contains(makeTargets(t), target) {
				t.Errorf("job %s: the Makefile has no target %s", job, target)
			}
		}
	}

	oldest := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(pages.Read(t, "go.mod"))[1]
	if versions := ci.Jobs["test"].Strategy.Matrix.Go; len(versions) == 0 || versions[0] != oldest {
		t.Errorf("a change is tested with Go %q, want %s of go.mod first", versions, oldest)
	}
	if image := ci.Jobs["fresh"].Container; !strings.HasPrefix(image, "golang:"+oldest+"-") {
		t.Errorf("the nightly run is in %s, want Go %s of go.mod", image, oldest)
	}
}

// A form that GitHub cannot read is not shown, and nothing says so.
func TestIssueFormsAreWhole(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(".github/ISSUE_TEMPLATE/*.yml")
	must(t, err)
	fields := map[string][]string{}
	for _, file := range files {
		var form struct {
			Name, Description string
			ContactLinks      []struct{ Name, URL, About string } `yaml:"contact_links"`
			Body              []struct {
				Type, ID   string
				Attributes struct{ Label, Value string }
			}
		}
		must(t, yaml.Unmarshal([]byte(pages.Read(t, file)), &form))
		if path.Base(file) == "config.yml" {
			for _, link := range form.ContactLinks {
				if link.Name == "" || link.About == "" {
					t.Errorf("%s: a link without name or text: %+v", file, link)
				}
				if at, ok := strings.CutPrefix(link.URL, "https://"+module+"/blob/main/"); ok {
					if _, err := os.Stat(at); err != nil {
						t.Errorf("%s: %v", file, err)
					}
				}
			}
			continue
		}
		if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
			t.Errorf("%s has no name, description or body", file)
		}
		for _, field := range form.Body {
			if field.Type != "markdown" && (field.ID == "" || field.Attributes.Label == "" || slices.Contains(fields[file], field.ID)) {
				t.Errorf("%s: a field without a label or an id of its own: %+v", file, field)
			}
			fields[file] = append(fields[file], field.ID)
		}
	}
	for _, id := range []string{"version", "store", "effects", "config", "logs"} {
		if !slices.Contains(fields[".github/ISSUE_TEMPLATE/bug.yml"], id) {
			t.Errorf("the form for bugs does not ask for %s", id)
		}
	}
}

// The page on compatibility has the versions of everything stored as they are.
func TestDocsStoredVersions(t *testing.T) {
	t.Parallel()
	now := map[string]int{"record: what its fields mean (`retrysafe.RecordVersion`)": retrysafe.RecordVersion}
	for of, glob := range map[string]string{
		"store/pgstore": "store/pgstore/migrations/*.sql", "store/sqlitestore": "store/sqlitestore/migrations/*.sql", "store/mysqlstore": "store/mysqlstore/migrations/*.sql", "inbox": "inbox/migrations/postgres/*.sql",
	} {
		files, err := filepath.Glob(glob)
		must(t, err)
		now["schema of `"+of+"`"] = len(files)
	}
	doc := pages.Read(t, "docs/compatibility.md")
	for what, version := range now {
		if row := fmt.Sprintf("| %s | %d |", what, version); !strings.Contains(doc, row) {
			t.Errorf("docs/compatibility.md has no row that begins\n%s", row)
		}
	}
}

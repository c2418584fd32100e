package tree_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/pages"
)

// Some documents are lists in which every line must be held by a test: windows,
// checklist, threats, guarantees. A line is a row of a table whose first cell is its
// number. It names what holds it in backquotes:
//
//	`httpkey: TestW1_MissingKeyIsRefused`  a test of a package; retrysafe is the root
//	`httpkey: TestW46_`                    all tests that begin so
//	`storetest: scopes isolate`            a rule of store/storetest
//	`prove storm`                          a check of retrysafe prove
//
// or says "not here:" and why.

// evidence is what a line can name.
type evidence struct {
	tests  map[string][]string // by the folder of their package
	rules  []string            // of storetest
	checks map[string][]string // of prove: which invariants each watches
}

// A listed line is one row of a list.
type listed struct {
	number string
	held   []string // what it names, without the backquotes
	why    string   // why nothing can hold it
}

// inTheTree returns all there is to be named.
func inTheTree(t *testing.T) *evidence {
	t.Helper()
	e := &evidence{tests: map[string][]string{}, checks: map[string][]string{}}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	rule := regexp.MustCompile(`(?m)^\tname: +"([^"]+)",\n\treason:`)
	walk(t, func(file string) {
		switch dir := path.Dir(file); {
		case strings.HasSuffix(file, "_test.go"):
			for _, m := range declared.FindAllStringSubmatch(pages.Read(t, file), -1) {
				e.tests[short(dir)] = append(e.tests[short(dir)], m[1])
			}
		case dir == "store/storetest":
			for _, m := range rule.FindAllStringSubmatch(pages.Read(t, file), -1) {
				e.rules = append(e.rules, m[1])
			}
		case strings.HasPrefix(dir, "cmd/retrysafe/internal/prove/") && strings.HasSuffix(file, ".go"):
			maps.Copy(e.checks, checksIn(t, file))
		}
	})
	return e
}

// checksIn returns the checks that a file declares, and what they hold: values that
// have a Name and Holds.
func checksIn(t *testing.T, file string) map[string][]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	must(t, err)
	found := map[string][]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		value, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		fields := map[string][]string{}
		for _, of := range value.Elts {
			if field, ok := of.(*ast.KeyValueExpr); ok {
				if name, ok := field.Key.(*ast.Ident); ok {
					fields[name.Name] = textsIn(field.Value)
				}
			}
		}
		if len(fields["Name"]) == 1 && len(fields["Shows"])+len(fields["Holds"]) > 0 {
			found[fields["Name"][0]] = fields["Holds"]
		}
		return true
	})
	return found
}

// textsIn returns the constant texts of an expression.
func textsIn(expression ast.Expr) (all []string) {
	ast.Inspect(expression, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
			all = append(all, strings.Trim(text.Value, "\"`"))
		}
		return true
	})
	return all
}

// short is what the pages call a package: they leave out the folders that only limit
// its importers.
func short(dir string) string {
	for _, prefix := range []string{"cmd/retrysafe/internal/", "internal/test/"} {
		if rest, ok := strings.CutPrefix(dir, prefix); ok {
			return rest
		}
	}
	return dir
}

// has reports whether there is what a line names.
func (e *evidence) has(named string) bool {
	if check, ok := strings.CutPrefix(named, "prove "); ok {
		_, there := e.checks[check]
		return there
	}
	pkg, name, _ := strings.Cut(named, ": ")
	if pkg == "storetest" {
		return slices.Contains(e.rules, name)
	}
	if pkg == "retrysafe" {
		pkg = root
	}
	return slices.ContainsFunc(e.tests[pkg], func(test string) bool {
		return test == name || strings.HasSuffix(name, "_") && strings.HasPrefix(test, name)
	})
}

var (
	numbered = regexp.MustCompile(`(?m)^\| ((?:W|T|S|L|C|Q)\d+) \|(.*)\|$`)
	holds    = regexp.MustCompile("`((?:[a-z][\\w./]*: |prove )[^`]+)`")
	notHere  = regexp.MustCompile(`not here: ([^|]+)`)
)

// listedIn returns the lines of a list, in their order.
func listedIn(doc string) (lines []listed) {
	for _, row := range numbered.FindAllStringSubmatch(doc, -1) {
		line := listed{number: row[1]}
		for _, m := range holds.FindAllStringSubmatch(row[2], -1) {
			line.held = append(line.held, m[1])
		}
		if m := notHere.FindStringSubmatch(row[2]); m != nil {
			line.why = strings.TrimSpace(m[1])
		}
		lines = append(lines, line)
	}
	return lines
}

// numbers returns prefix1, prefix2 and so on.
func numbers(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i+1))
	}
	return all
}

// unheld returns what is wrong with a list that should have the lines want. Counts
// says which of what a line names is enough to hold it; nil is any test or rule.
func unheld(doc string, want []string, e *evidence, counts func(number, named string) bool) (wrong []string) {
	found := map[string]bool{}
	for _, line := range listedIn(doc) {
		complain := func(format string, args ...any) {
			wrong = append(wrong, line.number+": "+fmt.Sprintf(format, args...))
		}
		if found[line.number] {
			complain("it is there twice")
		}
		found[line.number] = true
		if !slices.Contains(want, line.number) {
			complain("there is no such line")
		}
		held := false
		for _, named := range line.held {
			if !e.has(named) {
				complain("there is no %q in the tree", named)
			}
			held = held || !strings.HasPrefix(named, "prove ") && (counts == nil || counts(line.number, named))
		}
		switch {
		case held && line.why != "":
			complain("it is held by a test, and yet says why it cannot be")
		case !held && line.why == "":
			complain("no test holds it, and nothing says why")
		case !held && len(strings.Fields(line.why)) < 5:
			complain("%q is no reason", line.why)
		}
	}
	for _, number := range want {
		if !found[number] {
			wrong = append(wrong, number+": it is missing")
		}
	}
	return wrong
}

// carries reports whether a test has the number of a window in its name.
func carries(number, named string) bool {
	_, name, _ := strings.Cut(named, ": ")
	m := regexp.MustCompile(`^(?:Test|Fuzz)((?:W\d+)+)(?:_|[A-Z]|$)`).FindStringSubmatch(name)
	return m != nil && slices.Contains(regexp.MustCompile(`W\d+`).FindAllString(m[1], -1), number)
}

func report(t *testing.T, file string, wrong []string) {
	t.Helper()
	for _, w := range wrong {
		t.Errorf("%s: %s", file, w)
	}
}

// windows is how many there are.
const windows = 86

func TestDocsWindows(t *testing.T) {
	t.Parallel()
	e := inTheTree(t)
	report(t, "docs/windows.md", unheld(pages.Read(t, "docs/windows.md"), numbers("W", windows), e, carries))
	for pkg, tests := range e.tests { // a wrong number in a test's name would hold nothing, without a failure
		for _, test := range tests {
			for _, number := range regexp.MustCompile(`W\d+`).FindAllString(strings.SplitN(test, "_", 2)[0], -1) {
				if !slices.Contains(numbers("W", windows), number) {
					t.Errorf("%s: %s carries a number that no window has", pkg, test)
				}
			}
		}
	}
}

func TestDocsChecklist(t *testing.T) {
	t.Parallel()
	want := append(numbers("C", 18), numbers("Q", 8)...)
	report(t, "docs/checklist.md", unheld(pages.Read(t, "docs/checklist.md"), want, inTheTree(t), nil))
}

func TestDocsThreatModel(t *testing.T) {
	t.Parallel()
	report(t, "docs/threat-model.md", unheld(pages.Read(t, "docs/threat-model.md"), numbers("T", 32), inTheTree(t), nil))
}

func TestDocsGuarantees(t *testing.T) {
	t.Parallel()
	doc, e := pages.Read(t, "docs/guarantees.md"), inTheTree(t)
	report(t, "docs/guarantees.md", unheld(doc, append(numbers("S", 16), numbers("L", 5)...), e, nil))
	for _, line := range listedIn(doc) {
		for _, named := range line.held {
			if check, ok := strings.CutPrefix(named, "prove "); ok && !slices.Contains(e.checks[check], line.number) {
				t.Errorf("docs/guarantees.md: %s: %s does not watch it, only %v", line.number, named, e.checks[check])
			}
		}
	}
	if strings.Count(doc, "<!-- prove: written by make prove-full -->") != 1 || strings.Count(doc, "<!-- prove: end -->") != 1 {
		t.Error("docs/guarantees.md has no place for the figures of the last full run")
	}
}

// The lists are worth what their checker finds.
func TestDocsListsFindWhatIsMissing(t *testing.T) {
	t.Parallel()
	e := &evidence{
		tests:  map[string][]string{root: {"TestW1_Root"}, "httpkey": {"TestW1W2_Both", "TestW3Plain", "TestW10_Ten", "TestOther"}},
		rules:  []string{"scopes isolate"},
		checks: map[string][]string{"storm": {"S1"}},
	}
	const good = "| W1 | w | h | `retrysafe: TestW1_Root`, `httpkey: TestOther`, `prove storm` |\n" +
		"| W2 | w | h | `httpkey: TestW1W2_Both`, `storetest: scopes isolate` |\n" +
		"| W3 | w | h | `httpkey: TestW3Plain` |\n| W4 | w | | not here: there is no such store yet |\n"
	if wrong := unheld(good, numbers("W", 4), e, carries); len(wrong) != 0 {
		t.Errorf("a list that is right is found wanting: %q", wrong)
	}
	for name, c := range map[string]struct{ from, to, want string }{
		"a line is missing":             {"| W3 |", "| w3 |", "W3: it is missing"},
		"a line is there twice":         {"| W3 |", "| W2 |", "W2: it is there twice"},
		"a line too many":               {"| W4 |", "| W5 |", "W5: there is no such line"},
		"a test that is not there":      {"TestW1_Root", "TestW1_Roof", `W1: there is no "retrysafe: TestW1_Roof" in the tree`},
		"a test of another package":     {"httpkey: TestW3Plain", "retrysafe: TestW3Plain", `W3: there is no "retrysafe: TestW3Plain" in the tree`},
		"a rule that is not there":      {"scopes isolate", "scopes mix", `W2: there is no "storetest: scopes mix" in the tree`},
		"a check that is not there":     {"prove storm", "prove calm", `W1: there is no "prove calm" in the tree`},
		"only a test of another number": {"`retrysafe: TestW1_Root`", "`httpkey: TestW10_`", "W1: no test holds it, and nothing says why"},
		"only a check":                  {"`httpkey: TestW3Plain`", "`prove storm`", "W3: no test holds it, and nothing says why"},
		"nothing at all":                {"`httpkey: TestW3Plain`", "", "W3: no test holds it, and nothing says why"},
		"no reason":                     {"there is no such store yet", "later", `W4: "later" is no reason`},
		"a reason beside a test":        {"`httpkey: TestW3Plain`", "`httpkey: TestW3Plain` not here: we did not get round to it", "W3: it is held by a test, and yet says why it cannot be"},
	} {
		doc := strings.Replace(good, c.from, c.to, 1)
		if wrong := unheld(doc, numbers("W", 4), e, carries); doc == good || !slices.Contains(wrong, c.want) {
			t.Errorf("%s: found %q, want %q", name, wrong, c.want)
		}
	}
}

package rpckey

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/rpc.md")
	must(t, err)
	return string(text)
}

// The page has the table of codes as it is.
func TestDocsHaveTheMeaningOfEachCode(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| ([a-z ]+) \\| ([a-z ]+) \\| ([a-z ]+) \\|$")
	said := map[string][3]string{}
	for _, m := range row.FindAllStringSubmatch(page(t), -1) {
		said[m[1]] = [3]string{m[2], m[3], m[4]}
	}
	codes := DefaultCodes()
	if len(codes) != 16 || len(said) != len(codes) {
		t.Errorf("%d codes have a meaning, and the page has %d", len(codes), len(said))
	}
	becomes := map[Meaning][2]string{
		MeaningAnswer: {"stored", "stored"}, MeaningNotExecuted: {"may run again", "may run again"},
		MeaningServerError: {"unknown", "may run again"}, MeaningFailed: {"unknown", "may run again"},
	}
	for code, m := range codes {
		if want := [3]string{m.String(), becomes[m][0], becomes[m][1]}; said[code.String()] != want {
			t.Errorf("docs/rpc.md says that %s is %q, want %q", code, said[code.String()], want)
		}
	}
}

// The page has each refusal as it is.
func TestDocsHaveEachRefusal(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| `([A-Z_]+)` \\| (yes|no) \\| (yes|no) \\|$")
	said := map[string]bool{}
	for _, m := range row.FindAllString(page(t), -1) {
		said[m] = true
	}
	yes := map[bool]string{true: "yes", false: "no"}
	for _, p := range problems {
		want := fmt.Sprintf("| `%s` | `%s` | %s | %s |", p.code, p.status, yes[p.retryable], yes[p.safeNewKey])
		if !said[want] {
			t.Errorf("docs/rpc.md has no row\n%s", want)
		}
		if _, err := os.Stat("../docs/problems/" + p.code + ".md"); err != nil && !onlyRPC[p] {
			t.Errorf("%s has no page", p.code)
		}
	}
	if len(said) != len(problems) {
		t.Errorf("docs/rpc.md has %d refusals, want %d", len(said), len(problems))
	}
}

package keys_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestEveryVerb(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	here := clitest.NewShell(t, url)
	for _, c := range []struct {
		from    retrysafe.Write
		line    string
		to      retrysafe.State
		says    string
		confirm bool
	}{
		{clitest.Dead("t", "resolve"), "resolve t resolve --status 201 --header 'content-type: text/plain' --header 'X-A: 1' --header 'X-A: 2' --body paid --provider-ref ch_17", retrysafe.StateCompleted, "every retry gets its 201", true},
		{clitest.Dead("t", "decline"), "decline t decline --status 402", retrysafe.StateCompleted, "every retry gets its 402", true},
		{clitest.Dead("t", "release"), "release t release", retrysafe.StateRetryable, "released; it is retryable", true},
		{clitest.Dead("t", "redrive"), "redrive t redrive", retrysafe.StateUnknown, "to be asked about again", false},
		{clitest.Record("t", "forget", retrysafe.StateCompleted), "forget t forget", retrysafe.StateRetryable, "running gateways follow within a second", true},
		{clitest.Record("t", "erase", retrysafe.StateCompleted), "erase t erase", retrysafe.StateCompleted, "running gateways follow within a second", true},
	} {
		clitest.Put(t, s.Store, c.from)
		line := "keys " + c.line + " --why 'case 42'"
		if c.confirm {
			here.Run(line).Exits(2).Says("confirm with --yes").InOneLine()
			here.Typing("no\n").Run(line).Exits(1).Says("Type yes to go on", "revision", "not confirmed; nothing was done")
			if strings.Contains(line, "--body paid") {
				here.Typing("no\n").Run(line).Exits(1).Says("201 Created", "Content-Type: text/plain", "  paid")
			}
			here.Typing("").Run(line).Exits(1).Says("not confirmed")
			if r := clitest.Load(t, s.Store, "t", c.from.Key); r.State != c.from.State {
				t.Fatalf("%s: done without being confirmed", line)
			}
			here.Typing("yes\n").Run(line).Exits(0).Says(c.says)
		} else {
			here.Run(line).Exits(0).Says(c.says)
		}
		if r := clitest.Load(t, s.Store, "t", c.from.Key); r.State != c.to {
			t.Errorf("%s: the key is %s, want %s", line, r.State, c.to)
		}
	}
	r := clitest.Load(t, s.Store, "t", "resolve")
	want := &retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"text/plain"}, "X-A": {"1", "2"}}, Body: []byte("paid")}
	if !r.Result.Equal(want) || r.ProviderRef != "ch_17" {
		t.Errorf("the answer is %+v, by %s", r.Result, r.ProviderRef)
	}
	if last := r.Inquiry.Notes[len(r.Inquiry.Notes)-1]; !strings.HasPrefix(last.By, "operator anna@") || !strings.Contains(last.Text, "case 42") {
		t.Errorf("the note is %+v", last)
	}
	here.Run("keys audit").Exits(0).Golden("audit.txt")
	here.Run("keys audit --verb erase --format json").Exits(0).Golden("audit.jsonl")
	here.Run("keys audit t resolve").Exits(0).Says("resolve").Hides("erase")
	here.Run("keys audit --by nobody").Exits(0).Says("nothing")
	here.Run("keys audit --since 1h --limit 2 --long --format csv").Exits(0).Says("FROM", "erase", "forget").Hides("resolve", "redrive")
	here.Run("keys audit --since 2038-01-01").Exits(0).Says("nothing")
	here.Run("keys audit --before 2020-01-01").Exits(0).Says("nothing")
}

// The same line twice is done once, and says so; so does the same line from two
// terminals at once.
func TestDoubleClickReplays(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	here := clitest.NewShell(t, url)
	r := clitest.Put(t, s.Store, clitest.Dead("t", "k"))
	line := fmt.Sprintf("keys release t k --why 'node 3 is off' --yes --revision %d", r.Revision)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if got := here.Run(line); got.Code != 0 {
				t.Errorf("exit code %d: %s", got.Code, got.Err)
			}
		})
	}
	wg.Wait()
	here.Run(line).Exits(0).Says("released", "this was done before, by this same action")
	here.Run(line + " --format json").Exits(0).Says(`"replayed":true`)
	entry := here.Run("keys audit --format json").Exits(0)
	if id := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(entry.Out); id == nil {
		t.Errorf("the audit has no id of the action: %s", entry.Out)
	} else {
		here.Run("keys show t k").Exits(0).Says("[action " + id[1] + "]")
	}
	if own, all := here.Run("keys list -o json").Exits(0), here.Run("keys list -o json --system").Exits(0); strings.Count(own.Out, "\n") != 1 || strings.Count(all.Out, "\n") < 2 {
		t.Errorf("of clients there is %s\nof all %s", own.Out, all.Out)
	}
	if n := strings.Count(here.Run("keys audit --format json").Out, "\n"); n != 1 {
		t.Errorf("the audit has %d entries, want one", n)
	}
	notes := 0
	for _, n := range clitest.Load(t, s.Store, "t", "k").Inquiry.Notes {
		if strings.Contains(n.Text, "node 3") {
			notes++
		}
	}
	if notes != 1 {
		t.Errorf("the record has %d notes of it, want one", notes)
	}
	// Another reason is another action, and comes too late.
	here.Run(strings.Replace(line, "node 3", "node 4", 1)).Exits(1).Says("refused: the record has changed since it was shown", "keys show t k")
	// It replays also when the key is gone.
	forget := clitest.Put(t, s.Store, clitest.Record("t", "gone", retrysafe.StateCompleted))
	line = fmt.Sprintf("keys forget t gone --why x --yes --revision %d", forget.Revision)
	here.Run(line).Exits(0)
	if _, err := s.Store.Purge(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	here.Run(line).Exits(0).Says("this was done before")
	here.Run("keys show t gone").Exits(1)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	here := clitest.NewShell(t, url)
	clitest.Put(t, s.Store, clitest.Record("t", "running", retrysafe.StateInProgress))
	clitest.Put(t, s.Store, clitest.Record("t", "done", retrysafe.StateCompleted))
	clitest.Put(t, s.Store, clitest.Record("t", "retryable", retrysafe.StateRetryable))
	clitest.Put(t, s.Store, clitest.Dead("t", "dead"))
	for line, says := range map[string]string{
		"release t running":              "wait for the end of its lease",
		"forget t running":               "wait for the end of its lease",
		"forget t dead":                  "resolve, decline or release it first",
		"release t done":                 "its outcome is known; see what may be done: retrysafe keys show t done",
		"redrive t done":                 "no resolver is asked about it",
		"release t dead --revision 7":    "look again, it may have been done already",
		"release t nothing":              "there is no key nothing",
		"release t nothing --revision 7": "it was forgotten, or never was",
		"resolve t retryable --status 201 --body unlikely": "look for two effects",
	} {
		flags := " --why x"
		if !strings.HasPrefix(line, "redrive") {
			flags += " --yes"
		}
		here.Run("keys " + line + flags).Exits(1).Says(says).InOneLine()
	}
	got := here.Run("keys release t running --why y --yes --format json").Exits(1)
	var e operator.Entry
	if err := json.Unmarshal([]byte(got.Out), &e); err != nil || e.Code != "live" || e.Outcome != operator.StatusRefused {
		t.Errorf("the entry is %+v, %v", e, err)
	}
	for line, says := range map[string]string{
		"resolve t dead": "--status is missing", "resolve t dead --status 199": "--status is missing", "decline t dead --status 600": "--status is missing",
		"resolve t dead --status 201 --header Content-Type":      "it has no colon",
		"resolve t dead --status 201 --header 'Connection: x'":   "--header",
		"resolve t dead --status 201 --body-file /not/there":     "--body-file",
		"resolve t dead --status 201":                            "the answer has no body, and clients' programs read that of a 201; give it with --body or --body-file; if your API answers without one, say --no-body",
		"resolve t dead --status 200 --body ''":                  "the answer has no body",
		"resolve t dead --status 200 --body-file /dev/null":      "the answer has no body",
		"resolve t dead --status 200 --body a --no-body":         "none of the others can be",
		"resolve --state unknown --status 201":                   "the answer has no body",
		"resolve --state unknown --status 204 --provider-ref ch": "--provider-ref is for one key",
		"release t dead --state unknown":                         "a KEY and filters exclude each other",
		"release t dead --operation x":                           "a KEY and filters exclude each other",
		"release t dead --reason x":                              "a KEY and filters exclude each other",
		"release t dead --status 500":                            "a KEY and filters exclude each other",
		"resolve t dead --status 204 --upstream-status 500":      "a KEY and filters exclude each other",
		"release t dead --tenant x":                              "a KEY and filters exclude each other",
		"release t dead --since 1h":                              "a KEY and filters exclude each other",
		"release t dead --until 1h":                              "a KEY and filters exclude each other",
		"release t dead --rate 1":                                "--rate is for filters",
		"release t dead --dry-run":                               "--dry-run is for filters",
		"release t dead --yes-count 1":                           "--yes-count is for filters",
		"release":                                                "KEY is missing, or a filter",
		"release --state unknown":                                "--yes confirms the change of one key",
		"release --state unknown --revision 7":                   "--revision is for one key",
		"release --state unknown --rate -1":                      "--rate -1 is negative",
		"release --state unknown --yes-count -1":                 "--yes-count -1 is negative",
		"release --state lost":                                   "there is no state",
		"release --upstream-status 99":                           "is not a status of HTTP",
		"release --status 600":                                   "--upstream-status 600 is not a status of HTTP",
		"release --since 1h --until 2h":                          "is not before --until",
	} {
		here.Run("keys " + line + " --why x --yes").Exits(2).Says(says).InOneLine()
		if r := clitest.Load(t, s.Store, "t", "dead"); r.State != retrysafe.StateUnknown || r.Result != nil {
			t.Fatalf("%s: the key is %s", line, r.State)
		}
	}
	here.Typing("no\n").Run("keys release t dead --why x --revision 7").Exits(1).Says("revision 7", "it is at revision")
	here.Typing("no\n").Run("keys release t dead --why x").Exits(1).Hides("it is at revision")
	here.Run("keys release t dead --why", strings.Repeat("x", 400), "--yes").Exits(2).Says("Why must give the reason").InOneLine()
	here.Run("keys release t dead --why x --yes --id 'a b'").Exits(2).Says("ID must be printable ASCII").InOneLine()
	here.Run("keys redrive t dead --why x --id 1").Exits(0)
	here.Run("keys redrive t dead --why y --id 1").Exits(2).Says("belongs to another action").InOneLine()
}

func TestBodyOfAnAnswer(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	here := clitest.NewShell(t, url)
	body := filepath.Join(t.TempDir(), "body")
	clitest.Must(t, os.WriteFile(body, []byte{0, 1, 2, 0xff}, 0o600))
	clitest.Put(t, s.Store, clitest.Dead("t", "file"))
	here.Run("keys resolve t file --status 200 --why x --yes --body-file", body).Exits(0)
	clitest.Put(t, s.Store, clitest.Dead("t", "stdin"))
	here.Piping("from a pipe").Run("keys resolve t stdin --status 599 --why x --yes --body-file -").Exits(0)
	for key, want := range map[string]string{"file": "\x00\x01\x02\xff", "stdin": "from a pipe"} {
		if r := clitest.Load(t, s.Store, "t", key); string(r.Result.Body) != want {
			t.Errorf("%s: the body is %q", key, r.Result.Body)
		}
	}
	here.Run("keys show t file --body --format json").Exits(0).Says(`"body_base64":"AAEC/w=="`)
	here.Run("keys show t file --body").Exits(0).Says(`\x00\x01\x02\xff`)
	// Another answer is another action, and comes too late.
	line := fmt.Sprintf("keys resolve t other --status 200 --why x --yes --revision %d --body ", clitest.Put(t, s.Store, clitest.Dead("t", "other")).Revision)
	here.Run(line + "a").Exits(0)
	here.Run(line + "b").Exits(1).Says("has changed since it was shown")
	here.Run(line + "a").Exits(0).Says("this was done before")
	// A body is stored as a whole, or not at all.
	clitest.Must(t, os.Truncate(body, 16<<20+1))
	clitest.Put(t, s.Store, clitest.Dead("t", "large"))
	here.Run("keys resolve t large --status 200 --why x --yes --body-file", body).Exits(2).Says("the body is over").InOneLine()
}

// A store that does not answer has done nothing, and that is said.
func TestStoreThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	clitest.Put(t, s.Store, clitest.Dead("t", "k"))
	tx, err := s.Store.(*sqlitestore.Store).DB().BeginTx(t.Context(), nil) // it has the write lock
	clitest.Must(t, err)
	clitest.NewShell(t, url).Run("keys redrive t k --why x").Exits(3).Says("nothing was done").InOneLine()
	clitest.Must(t, tx.Rollback())
	clitest.NewShell(t, url).Run("keys redrive t k --why x").Exits(0)
}

// Where the store cannot tell running gateways of a change, the command says how long it
// takes.
func TestForgetSaysWhenGatewaysFollow(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	clitest.Put(t, s.Store, clitest.Record("t", "k", retrysafe.StateCompleted))
	if _, err := s.Store.(*sqlitestore.Store).DB().ExecContext(t.Context(), `DROP TABLE retrysafe_changes`); err != nil {
		t.Fatal(err)
	}
	clitest.NewShell(t, url).Run("keys forget t k --why x --yes").Exits(0).Says("forgotten", "cache.max_age")
}

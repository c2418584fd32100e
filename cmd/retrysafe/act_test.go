package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestEveryVerb(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	here := newShell(t, url)
	for _, c := range []struct {
		from    retrysafe.Record
		line    string
		to      retrysafe.State
		says    string
		confirm bool
	}{
		{dead("t", "resolve"), "resolve t resolve --status 201 --header 'content-type: text/plain' --header 'X-A: 1' --header 'X-A: 2' --body paid --provider-ref ch_17", retrysafe.StateCompleted, "every retry gets its 201", true},
		{dead("t", "decline"), "decline t decline --status 402", retrysafe.StateCompleted, "every retry gets its 402", true},
		{dead("t", "release"), "release t release", retrysafe.StateRetryable, "released; it is retryable", true},
		{dead("t", "redrive"), "redrive t redrive", retrysafe.StateUnknown, "to be asked about again", false},
		{record("t", "forget", retrysafe.StateCompleted), "forget t forget", retrysafe.StateRetryable, "forgotten", true},
		{record("t", "erase", retrysafe.StateCompleted), "erase t erase", retrysafe.StateCompleted, "erased", true},
	} {
		put(t, s.Store, c.from)
		line := "keys " + c.line + " --why 'case 42'"
		if c.confirm {
			here.run(line).exits(2).says("say so with --yes").inOneLine()
			here.typing("no\n").run(line).exits(1).says("Type yes to go on", "revision", "not confirmed; nothing was done")
			if strings.Contains(line, "--body paid") {
				here.typing("no\n").run(line).exits(1).says("201 Created", "Content-Type: text/plain", "  paid")
			}
			here.typing("").run(line).exits(1).says("not confirmed")
			if r := load(t, s.Store, "t", c.from.Key); r.State != c.from.State {
				t.Fatalf("%s: done without being confirmed", line)
			}
			here.typing("yes\n").run(line).exits(0).says(c.says)
		} else {
			here.run(line).exits(0).says(c.says)
		}
		if r := load(t, s.Store, "t", c.from.Key); r.State != c.to {
			t.Errorf("%s: the key is %s, want %s", line, r.State, c.to)
		}
	}
	r := load(t, s.Store, "t", "resolve")
	want := &retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"text/plain"}, "X-A": {"1", "2"}}, Body: []byte("paid")}
	if !r.Result.Equal(want) || r.ProviderRef != "ch_17" {
		t.Errorf("the answer is %+v, by %s", r.Result, r.ProviderRef)
	}
	if last := r.Inquiry.Notes[len(r.Inquiry.Notes)-1]; !strings.HasPrefix(last.By, "operator anna@") || !strings.Contains(last.Text, "case 42") {
		t.Errorf("the note is %+v", last)
	}
	here.run("keys audit").exits(0).golden("audit.txt")
	here.run("keys audit --verb erase --format json").exits(0).golden("audit.jsonl")
	here.run("keys audit t resolve").exits(0).says("resolve").hides("erase")
	here.run("keys audit --by nobody").exits(0).says("nothing")
	here.run("keys audit --since 1h --limit 2 --long --format csv").exits(0).says("FROM")
	here.run("keys audit --before 2020-01-01").exits(0).says("nothing")
}

// The same line twice is done once, and says so; so does the same line from two
// terminals at once.
func TestDoubleClickReplays(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	here := newShell(t, url)
	r := put(t, s.Store, dead("t", "k"))
	line := fmt.Sprintf("keys release t k --why 'node 3 is off' --yes --revision %d", r.Revision)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if got := here.run(line); got.code != 0 {
				t.Errorf("exit code %d: %s", got.code, got.err)
			}
		})
	}
	wg.Wait()
	here.run(line).exits(0).says("released", "this was done before, by this same action")
	here.run(line + " --format json").exits(0).says(`"replayed":true`)
	if n := strings.Count(here.run("keys audit --format json").out, "\n"); n != 1 {
		t.Errorf("the audit has %d entries, want one", n)
	}
	notes := 0
	for _, n := range load(t, s.Store, "t", "k").Inquiry.Notes {
		if strings.Contains(n.Text, "node 3") {
			notes++
		}
	}
	if notes != 1 {
		t.Errorf("the record has %d notes of it, want one", notes)
	}
	// Another reason is another action, and comes too late.
	here.run(strings.Replace(line, "node 3", "node 4", 1)).exits(1).says("refused: the record has changed since it was shown", "keys show t k")
	// It replays also when the key is gone.
	forget := put(t, s.Store, record("t", "gone", retrysafe.StateCompleted))
	line = fmt.Sprintf("keys forget t gone --why x --yes --revision %d", forget.Revision)
	here.run(line).exits(0)
	if _, err := s.Store.Purge(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	here.run(line).exits(0).says("this was done before")
	here.run("keys show t gone").exits(1)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	here := newShell(t, url)
	put(t, s.Store, record("t", "running", retrysafe.StateInProgress))
	put(t, s.Store, record("t", "done", retrysafe.StateCompleted))
	put(t, s.Store, record("t", "retryable", retrysafe.StateRetryable))
	put(t, s.Store, dead("t", "dead"))
	for line, says := range map[string]string{
		"release t running":              "wait for the end of its lease",
		"forget t running":               "wait for the end of its lease",
		"forget t dead":                  "resolve, decline or release it first",
		"release t done":                 "its outcome is known; see what may be done: retrysafe keys show t done",
		"redrive t done":                 "no resolver is asked about it",
		"release t dead --revision 7":    "look again, somebody else may have done it",
		"release t nothing":              "there is no key nothing",
		"release t nothing --revision 7": "it was forgotten, or never was",
		"resolve t retryable --status 201 --body unlikely": "look for two effects",
	} {
		flags := " --why x"
		if !strings.HasPrefix(line, "redrive") {
			flags += " --yes"
		}
		here.run("keys " + line + flags).exits(1).says(says).inOneLine()
	}
	got := here.run("keys release t running --why y --yes --format json").exits(1)
	var e operator.Entry
	if err := json.Unmarshal([]byte(got.out), &e); err != nil || e.Code != "live" || e.Outcome != operator.Refused {
		t.Errorf("the entry is %+v, %v", e, err)
	}
	here.run("keys release t dead --why", strings.Repeat("x", 400), "--yes").exits(2).says("Why must give the reason").inOneLine()
	here.run("keys release t dead --why x --yes --id 'a b'").exits(2).says("ID must be printable ASCII").inOneLine()
	here.run("keys redrive t dead --why x --id 1").exits(0)
	here.run("keys redrive t dead --why y --id 1").exits(2).says("belongs to another action").inOneLine()
}

func TestWhoItIs(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	put(t, s.Store, dead("t", "k"))
	here := newShell(t, url)
	here.run("keys redrive t k --why one --by carol").exits(0).says("by carol")
	here.with("USER", "").with("LOGNAME", "dan").run("keys redrive t k --why two").exits(0).says("by dan@")
	here.with("USER", "").run("keys redrive t k --why three").exits(2).says("use --by NAME").inOneLine()
}

func TestBodyOfAnAnswer(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	here := newShell(t, url)
	body := filepath.Join(t.TempDir(), "body")
	must(t, os.WriteFile(body, []byte{0, 1, 2, 0xff}, 0o600))
	put(t, s.Store, dead("t", "file"))
	here.run("keys resolve t file --status 200 --why x --yes --body-file", body).exits(0)
	put(t, s.Store, dead("t", "stdin"))
	piped := *here
	piped.stdin = "from a pipe"
	piped.run("keys resolve t stdin --status 200 --why x --yes --body-file -").exits(0)
	for key, want := range map[string]string{"file": "\x00\x01\x02\xff", "stdin": "from a pipe"} {
		if r := load(t, s.Store, "t", key); string(r.Result.Body) != want {
			t.Errorf("%s: the body is %q", key, r.Result.Body)
		}
	}
	here.run("keys show t file --body --format json").exits(0).says(`"body_base64":"AAEC/w=="`)
	here.run("keys show t file --body").exits(0).says(`\x00\x01\x02\xff`)
}

// A store that does not answer has done nothing, and that is said.
func TestStoreThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	put(t, s.Store, dead("t", "k"))
	tx, err := s.Store.(*sqlitestore.Store).DB().BeginTx(t.Context(), nil) // it has the write lock
	must(t, err)
	newShell(t, url).run("keys redrive t k --why x").exits(3).says("nothing was done").inOneLine()
	must(t, tx.Rollback())
	newShell(t, url).run("keys redrive t k --why x").exits(0)
}

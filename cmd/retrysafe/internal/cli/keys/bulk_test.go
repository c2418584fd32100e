package keys_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// afterOutage stores n charges that ended with a 500, and a few others.
func afterOutage(t *testing.T, s retrysafe.Store, n int) {
	t.Helper()
	for i := range n {
		r := clitest.Record("tenant-a", fmt.Sprintf("charge-%04d", i), retrysafe.StateUnknown)
		r.Reason = "the service answered 500"
		clitest.Put(t, s, r)
	}
	timeout := clitest.Dead("tenant-b", "timeout")
	timeout.Reason = "read tcp 127.0.0.1:41234->127.0.0.1:9000: i/o timeout"
	clitest.Put(t, s, timeout)
	disputed := clitest.Dead("tenant-a", "disputed")
	disputed.Inquiry.Disputed, disputed.Reason = true, "the service answered 500"
	clitest.Put(t, s, disputed)
	lapsed := clitest.Record("tenant-a", "lapsed", retrysafe.StateInProgress)
	lapsed.Term = 0
	clitest.Put(t, s, lapsed)
	clitest.Put(t, s, clitest.Record("tenant-a", "answered", retrysafe.StateCompleted))
}

func TestGroups(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	here := clitest.NewShell(t, url)
	here.Run("keys groups").Exits(0).Says("nothing needs a person")
	afterOutage(t, s.Store, 20)
	here.Run("keys groups").Exits(0).Golden("groups.txt")
	here.Run("keys groups -o json").Exits(0).Says(`{"state":"unknown","operation":"POST /charges","reason":"the service answered 500","status":500,"count":20,"dead":0,"oldest_at":"`,
		`"age_seconds":`, `"next":["retrysafe keys release --state unknown --operation 'POST /charges' --reason 'the service answered 500' --upstream-status 500 --why '...'",`)
	here.Run("keys groups --tenant tenant-b").Exits(0).Says("i/o timeout", "--tenant tenant-b").Hides("answered 500")
	here.Run("keys groups --since 1h --until 2038-01-01").Exits(0).Says("--reason 'the service answered 500' --upstream-status 500 --since 20", " --until 2038-01-01T00:00:00")
	here.Run("keys groups --since 2030-01-01").Exits(0).Says("nothing needs a person")
}

// The commands that groups prints can be copied, and select the group.
func TestCommandsOfGroupsSelectTheGroup(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	afterOutage(t, s.Store, 20)
	here := clitest.NewShell(t, "")
	groups := here.RunArgs("keys", "groups", "--store", url, "-o", "json").Exits(0)
	seen := 0
	for line := range strings.Lines(groups.Out) {
		var g struct {
			Count    int
			Disputed bool
			State    string
			Next     []string
		}
		clitest.Must(t, json.Unmarshal([]byte(line), &g))
		for _, next := range g.Next {
			args := shellWords(filledIn(next))[1:]
			switch args[1] {
			case "list":
				listed := here.RunArgs(append(args, "-o", "json")...).Exits(0)
				if n := strings.Count(listed.Out, "\n"); n < g.Count || n > g.Count+1 { // disputed and other ones are listed together
					t.Errorf("%s lists %d of a group of %d", next, n, g.Count)
				}
			case "release", "resolve", "redrive":
				here.RunArgs(append(args, "--dry-run")...).Exits(0).Says(fmt.Sprintf("would %s %d key", args[1], g.Count))
				seen++
			}
		}
	}
	if !strings.Contains(groups.Out, "keys resolve") || strings.Contains(groups.Out, " --status 500") {
		t.Errorf("one flag is the status of the service, another one that of an answer:\n%s", groups.Out)
	}
	if seen != 6 {
		t.Errorf("%d commands were tried, want 6", seen)
	}
}

func TestBulkRelease(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	afterOutage(t, s.Store, 20)
	here := clitest.NewShell(t, url)
	filters := "keys release --operation 'POST /charges' --upstream-status 500"
	here.Run(filters + " --dry-run").Exits(0).Golden("bulk-dry-run.txt")
	var dry struct {
		Count, Disputed int
		Sample          []struct{ Key string }
	}
	clitest.Must(t, json.Unmarshal([]byte(here.Run(filters+" --dry-run -o json").Exits(0).Out), &dry))
	if dry.Count != 20 || dry.Disputed != 1 || len(dry.Sample) != 10 {
		t.Errorf("%+v", dry)
	}
	other := here.Run("keys release --operation 'POST /charges' --state unknown --scope tenant-b --dry-run -o json").Exits(0)
	clitest.Must(t, json.Unmarshal([]byte(other.Out), &dry))
	if dry.Count != 1 || len(dry.Sample) != 1 || dry.Sample[0].Key != "timeout" {
		t.Errorf("of another scope: %+v", dry)
	}
	line := filters + " --why 'the provider has none of them'"
	here.Run(line).Exits(2).Says("confirm with --yes-count 20").InOneLine()
	here.Typing("yes\n").Run(line).Exits(1).Says("20 keys match", "Type the number 20", "not confirmed; nothing was done")
	here.Typing("21\n").Run(line).Exits(1).Says("not confirmed")
	here.Run(line + " --yes-count 19").Exits(1).Says("20 keys match, and only 19 were confirmed; nothing was done").InOneLine()
	if r := clitest.Load(t, s.Store, "tenant-a", "charge-0007"); r.State != retrysafe.StateUnknown {
		t.Fatal("it was done without being confirmed")
	}
	here.Typing("20\n").Run(line+" --id after-the-outage").Exits(0).Says("released: 20 of 20 keys", "action after-the-outage by anna@")
	here.Run(line + " --yes-count 20").Exits(1).Says("no keys match; 1 disputed one is left out").InOneLine()
	here.Run(line+" --id after-the-outage --yes-count 20").Exits(0).Says("released: 20 of 20 keys", "this was done before")
	here.Run("keys release --status 502 --why otherwise --yes-count 1 --id after-the-outage").Exits(2).Says("belongs to another action").InOneLine()
	if r := clitest.Load(t, s.Store, "tenant-a", "charge-0007"); r.State != retrysafe.StateRetryable {
		t.Errorf("it is %s", r.State)
	}
	here.Run("keys audit").Exits(0).Says("20 of 20 keys", "release").Hides("charge-0007")
	here.Run("keys audit --long").Exits(0).Says(`operation="POST /charges" state="unknown" status=500`)
	each := here.Run("keys audit --batch after-the-outage -o json").Exits(0)
	if n := strings.Count(each.Out, `"batch":"after-the-outage"`); n != 20 {
		t.Errorf("the audit has %d entries of the batch", n)
	}
	here.Run("keys audit tenant-a charge-0007").Exits(0).Says("release", "done")
}

// The confirmation shows the whole answer that many keys get, also that it has no body.
func TestBulkResolveShowsItsAnswer(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	clitest.Put(t, s.Store, clitest.Dead("t", "one"))
	here := clitest.NewShell(t, url)
	resolve := "keys resolve --state unknown --status 201 --why statement"
	here.Typing("1\n").Run(resolve).Exits(2).Says("the answer has no body", "--no-body").InOneLine()
	here.Typing("no\n").Run(resolve+" --no-body").Exits(1).Says("1 key matches", "201 Created\n  (no body)")
	here.Typing("no\n").Run(resolve + " --body paid").Exits(1).Says("201 Created\n  paid").Hides("(no body)")
	here.Run(resolve + " --no-body --yes-count 1").Exits(0).Says("resolved: 1 of 1 key")
	if r := clitest.Load(t, s.Store, "t", "one"); r.State != retrysafe.StateCompleted || len(r.Result.Body) != 0 {
		t.Errorf("it is %s", r.State)
	}
}

// --status is the former name of --upstream-status in commands that store no answer.
func TestStatusOfTheServiceHasItsFormerName(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	afterOutage(t, s.Store, 20)
	here := clitest.NewShell(t, url)
	for _, flag := range []string{"--status", "--upstream-status"} {
		for _, verb := range []string{"release", "redrive"} {
			here.Run("keys " + verb + " " + flag + " 500 --dry-run").Exits(0).Says("would " + verb + " 20 keys")
		}
		here.Run("keys list " + flag + " 599").Exits(0).Hides("charge-0001")
		here.Run("keys groups " + flag + " 500").Exits(0).Hides("i/o timeout")
		here.Run("keys quarantine " + flag + " 500 --dry-run").Exits(0).Says("would quarantine 0 keys")
	}
	here.Run("keys resolve --upstream-status 500 --status 204 --dry-run").Exits(0).Says("would resolve 20 keys")
}

func TestBulkVerbsOnPostgres(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t) + "&schema=bulk"
	s := clitest.Open(t, url)
	afterOutage(t, s.Store, 30)
	here := clitest.NewShell(t, url)
	here.Run("keys groups").Exits(0).Says("30")
	here.Run("keys redrive --state unknown --rate 1000 --why again --yes-count 31").Exits(0).Says("to be asked about again: 31 of 31 keys")
	here.Run("keys quarantine --operation 'POST /charges' --state in_progress --why lost --yes-count 1 -o json").Exits(0).Says(`"done":1`)
	here.Run("keys decline --reason '*timeout' --status 402 --body no --why refused --yes-count 1").Exits(0).Says("declined: 1 of 1 key")
	here.Run("keys resolve --upstream-status 500 --status 201 --body paid --why statement --yes-count 30").Exits(0).Says("resolved: 30 of 30 keys")
	if r := clitest.Load(t, s.Store, "tenant-a", "charge-0003"); r.State != retrysafe.StateCompleted || string(r.Result.Body) != "paid" {
		t.Errorf("it is %s", r.State)
	}
}

// A bulk action that is interrupted says how it goes on, and goes on so: each key is
// changed once.
func TestBulkGoesOnAfterAnInterruption(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	afterOutage(t, s.Store, 300)
	p := clitest.StartIn(t, []string{"RETRYSAFE_STORE=" + url, "USER=anna"}, "keys", "release", "--status", "500", "--since", "1h", "--why", "after the outage", "--yes-count", "300", "--rate", "50")
	for released(t, s.Store) < 10 {
		select {
		case <-p.Ended:
			t.Fatalf("it ended:\n%s", &p.Output)
		case <-time.After(5 * time.Millisecond):
		}
	}
	p.Signal(os.Interrupt)
	p.Exits(130).Says("it was interrupted after", "go on with the same command and: --by anna@")
	first := released(t, s.Store)
	if first == 300 {
		t.Fatal("it was not interrupted")
	}
	more := regexp.MustCompile(`the same command and: (.*)`).FindStringSubmatch(p.Output.String())[1]
	here := clitest.NewShell(t, url)
	here.RunArgs(append([]string{"keys", "release", "--status", "500", "--since", "1h", "--why", "after the outage", "--yes-count", "300"}, shellWords(more)...)...).
		Exits(0).Says("released: 300 of 300 keys")
	if n := released(t, s.Store); n != 300 {
		t.Errorf("%d keys are released", n)
	}
	id := regexp.MustCompile(`--id (\S+)`).FindStringSubmatch(more)[1]
	if n := strings.Count(here.Run("keys audit --limit 1000 -o json --batch", id).Exits(0).Out, "\n"); n != 300 {
		t.Errorf("the audit has %d entries of the batch", n)
	}
}

func released(t *testing.T, s retrysafe.Store) int {
	t.Helper()
	list, err := s.List(t.Context(), retrysafe.Query{States: []retrysafe.State{retrysafe.StateRetryable}, Limit: 1000})
	clitest.Must(t, err)
	return len(list)
}

// After kill -9 the same command goes on at once with what still matches, as a batch of
// its own. The entry of the killed one stays open.
func TestBulkGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	afterOutage(t, s.Store, 200)
	args := []string{"keys", "release", "--status", "500", "--why", "after the outage", "--yes-count", "200"}
	p := clitest.StartIn(t, []string{"RETRYSAFE_STORE=" + url, "USER=anna"}, append(args, "--rate", "50", "--id", "killed")...)
	for released(t, s.Store) < 10 {
		select {
		case <-p.Ended:
			t.Fatalf("it ended:\n%s", &p.Output)
		case <-time.After(5 * time.Millisecond):
		}
	}
	p.Signal(os.Kill)
	<-p.Ended
	left := 200 - released(t, s.Store)
	here := clitest.NewShell(t, url)
	here.RunArgs(args...).Exits(0).Says(fmt.Sprintf("released: %d of %d keys", left, left))
	if n := released(t, s.Store); n != 200 {
		t.Errorf("%d keys are released", n)
	}
	here.Run("keys audit").Exits(0).Says("open", "done")
}

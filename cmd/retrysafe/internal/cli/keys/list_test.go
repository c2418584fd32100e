package keys_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/internal/adminwire"
)

// everyState puts a record of each kind.
func everyState(t *testing.T, s retrysafe.Store) {
	t.Helper()
	for state := retrysafe.StateAccepted; state.Valid(); state++ {
		clitest.Put(t, s, clitest.Record("tenant-a", state.String(), state))
	}
	clitest.Put(t, s, clitest.Dead("tenant-a", "dead"))
	disputed := clitest.Dead("tenant-a", "disputed")
	disputed.Inquiry.Disputed = true
	clitest.Put(t, s, disputed)
	lapsed := clitest.Record("tenant-a", "lapsed", retrysafe.StateInProgress)
	lapsed.Term = 0
	clitest.Put(t, s, lapsed)
	late := clitest.Record("tenant-b", "late", retrysafe.StateAccepted)
	late.Term = 0
	clitest.Put(t, s, late)
	omitted := clitest.Record("tenant-b", "omitted", retrysafe.StateCompleted)
	omitted.Result = &retrysafe.Result{Status: 200, Omitted: true}
	omitted.ProviderRef = "ch_17"
	clitest.Put(t, s, omitted)
}

func TestListOfEveryState(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	everyState(t, s.Store)
	here := clitest.NewShell(t, url)
	here.Run("keys list").Exits(0).Golden("list.txt")
	here.Run("keys list --long").Exits(0).Golden("list-long.txt")
	here.Run("keys list --hash").Exits(0).Golden("list-hash.txt")
	here.Run("keys list --format csv --hash").Exits(0).Golden("list.csv")
	here.Run("keys list --format json").Exits(0).Golden("list.jsonl")
	here.Run("keys list --format json --hash").Exits(0).Says(`"key_hash":"`+retrysafe.HashKey("lapsed")+`"`).Hides(`"lapsed"`, `"body"`)
	for line, want := range map[string]int{
		"--scope tenant-b": 2, "--scope nobody": 0, "--state unknown": 3, "--state completed --state expired": 3, "--dead": 2,
		"--due --state in_progress": 1, "--due --state in_progress --state accepted": 2, "--key-hash " + retrysafe.HashKey("lapsed"): 1, "--limit 3": 3, "--all": 11, "--all --limit 3": 11,
	} {
		got := here.Run("keys list --format json " + line).Exits(0)
		if n := strings.Count(got.Out, "\n"); n != want {
			t.Errorf("keys list %s: %d records, want %d", line, n, want)
		}
		if want == 0 {
			got.Says("no keys")
		}
	}
}

// Only resolvers give an outcome up: without one the list of those is empty, and says that
// unknown outcomes need a person all the same.
func TestListOfTheDeadNamesUnknownOutcomes(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	here := clitest.NewShell(t, url)
	const hint = "--state unknown"
	for _, line := range []string{"keys list --dead", "keys list --dead --sort created"} {
		here.Run(line).Exits(0).Says("no keys").Hides(hint)
	}
	clitest.Put(t, s.Store, clitest.Record("tenant-a", "charged", retrysafe.StateCompleted))
	clitest.Put(t, s.Store, clitest.Record("tenant-a", "perhaps", retrysafe.StateUnknown))
	for line, says := range map[string]bool{
		"keys list --dead": true, "keys list --dead --sort created": true, "keys list --dead --scope tenant-a": true,
		"keys list --dead --scope tenant-b": false, "keys list --state accepted": false,
	} {
		got := here.Run(line).Exits(0).Says("no keys")
		if says {
			got.Says(hint)
		} else {
			got.Hides(hint)
		}
	}
	clitest.Put(t, s.Store, clitest.Dead("tenant-a", "dead"))
	here.Run("keys list --dead").Exits(0).Hides("no keys", hint)
	// A list of a part of the keys does not show that none is given up.
	for _, part := range []string{"--key-hash 000000000000", "--state completed", "--after '" + adminwire.FormatRef(clitest.Dead("tenant-a", "dead").Ref) + "'"} {
		here.Run("keys list --dead " + part).Exits(0).Says("no keys").Hides(hint)
	}
}

// A list that is cut says how it goes on, and goes on so.
func TestListGoesOn(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	for i := range 25 {
		clitest.Put(t, s.Store, clitest.Record("tenant\n"+fmt.Sprint(i%2), fmt.Sprintf("key %d", i), retrysafe.StateCompleted))
	}
	here, seen, line := clitest.NewShell(t, url), map[string]bool{}, "keys list --format json --limit 4"
	for page := 0; line != ""; page++ {
		got := here.Run(line).Exits(0)
		for text := range strings.Lines(got.Out) {
			var r struct{ Scope, Key string }
			clitest.Must(t, json.Unmarshal([]byte(text), &r))
			if seen[r.Scope+r.Key] {
				t.Errorf("%q is there twice", r)
			}
			seen[r.Scope+r.Key] = true
		}
		line = ""
		if m := regexp.MustCompile(`the same with (--after \S+)`).FindStringSubmatch(got.Err); m != nil {
			line = "keys list --format json --limit 4 " + m[1]
		}
	}
	if len(seen) != 25 {
		t.Errorf("%d keys were listed, want 25", len(seen))
	}
}

func TestHash(t *testing.T) {
	t.Parallel()
	if got := clitest.NewShell(t, "").Run("keys hash 8e03978e-40d5-43dd-bc93-6894a57f9324").Exits(0); got.Out != retrysafe.HashKey("8e03978e-40d5-43dd-bc93-6894a57f9324")+"\n" {
		t.Errorf("keys hash = %q", got.Out)
	}
	if got := clitest.NewShell(t, "").RunArgs("keys", "hash", `"a\tb"`).Exits(0); got.Out != retrysafe.HashKey("a\tb")+"\n" {
		t.Errorf("keys hash = %q of a key in quotes", got.Out)
	}
}

package main_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// everyState puts a record of each kind.
func everyState(t *testing.T, s retrysafe.Store) {
	t.Helper()
	for state := retrysafe.StateAccepted; state.Valid(); state++ {
		put(t, s, record("tenant-a", state.String(), state))
	}
	put(t, s, dead("tenant-a", "dead"))
	disputed := dead("tenant-a", "disputed")
	disputed.Inquiry.Disputed = true
	put(t, s, disputed)
	lapsed := record("tenant-a", "lapsed", retrysafe.StateInProgress)
	lapsed.Term = 0
	put(t, s, lapsed)
	late := record("tenant-b", "late", retrysafe.StateAccepted)
	late.Term = 0
	put(t, s, late)
	omitted := record("tenant-b", "omitted", retrysafe.StateCompleted)
	omitted.Result = &retrysafe.Result{Status: 200, Omitted: true}
	omitted.ProviderRef = "ch_17"
	put(t, s, omitted)
}

func TestListOfEveryState(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	everyState(t, s.Store)
	here := newShell(t, url)
	here.run("keys list").exits(0).golden("list.txt")
	here.run("keys list --long").exits(0).golden("list-long.txt")
	here.run("keys list --hash").exits(0).golden("list-hash.txt")
	here.run("keys list --format csv --hash").exits(0).golden("list.csv")
	here.run("keys list --format json").exits(0).golden("list.jsonl")
	for line, want := range map[string]int{
		"--scope tenant-b": 2, "--scope nobody": 0, "--state unknown": 3, "--state completed --state expired": 3, "--dead": 2,
		"--due --state in_progress": 1, "--due --state in_progress --state accepted": 2, "--key-hash " + retrysafe.HashKey("lapsed"): 1, "--limit 3": 3, "--all": 11,
	} {
		got := here.run("keys list --format json " + line).exits(0)
		if n := strings.Count(got.out, "\n"); n != want {
			t.Errorf("keys list %s: %d records, want %d", line, n, want)
		}
		if want == 0 {
			got.says("no keys")
		}
	}
}

// A list that is cut says how it goes on, and goes on so.
func TestListGoesOn(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	for i := range 25 {
		put(t, s.Store, record("tenant\n"+fmt.Sprint(i%2), fmt.Sprintf("key %d", i), retrysafe.StateCompleted))
	}
	here, seen, line := newShell(t, url), map[string]bool{}, "keys list --format json --limit 4"
	for page := 0; line != ""; page++ {
		got := here.run(line).exits(0)
		for text := range strings.Lines(got.out) {
			var r struct{ Scope, Key string }
			must(t, json.Unmarshal([]byte(text), &r))
			if seen[r.Scope+r.Key] {
				t.Errorf("%q is there twice", r)
			}
			seen[r.Scope+r.Key] = true
		}
		line = ""
		if m := regexp.MustCompile(`the same with (--after \S+)`).FindStringSubmatch(got.err); m != nil {
			line = "keys list --format json --limit 4 " + m[1]
		}
	}
	if len(seen) != 25 {
		t.Errorf("%d keys were listed, want 25", len(seen))
	}
}

func TestShowExplainsEveryState(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	everyState(t, s.Store)
	here := newShell(t, url)
	for _, key := range []string{"tenant-a accepted", "tenant-a in_progress", "tenant-a completed", "tenant-a retryable", "tenant-a unknown", "tenant-a expired", "tenant-a dead", "tenant-a disputed", "tenant-a lapsed", "tenant-b late", "tenant-b omitted"} {
		here.run("keys show " + key).exits(0).golden("show-" + strings.Fields(key)[1] + ".txt")
	}
	here.run("keys show tenant-a completed --body --long").exits(0).golden("show-body.txt")
	here.run("keys show tenant-a dead --format json").exits(0).golden("show.json")
	here.run("keys show tenant-a completed --body --format json").exits(0).says(`"body":"{\"id\":\"pay_1\"}"`)
	here.run("keys show tenant-a nothing").exits(1).inOneLine().says("there is no key nothing in the scope tenant-a")
}

// How far an operation has come is shown by the names of its steps.
func TestShowHasTheSteps(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	engine, err := retrysafe.New(s.Store, &retrysafe.Options{Policy: retrysafe.Policy{Lapse: retrysafe.LapseResume, Effects: retrysafe.EffectsKeyed}})
	must(t, err)
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "t", Key: "k"}, Fingerprint: retrysafe.Fingerprint{Alg: 1}}
	_, err = engine.Do(t.Context(), call, func(ctx context.Context, _ *retrysafe.Execution) (retrysafe.Result, error) {
		if _, err := retrysafe.Phase(ctx, "ride", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return retrysafe.Result{}, err
		}
		_, err := retrysafe.Effect(ctx, "charge", nil, func(context.Context, retrysafe.Attempt) (int, error) { return 0, errors.New("the line was cut") })
		return retrysafe.Result{}, err
	})
	if err == nil {
		t.Fatal("it went well")
	}
	newShell(t, url).run("keys show t k").exits(0).says("ride, then charge (called 1 time, and nobody knows how that ended)")
	newShell(t, url).run("keys show t k --format json").exits(0).says(`"steps":[{"name":"ride"},{"name":"charge","effect":true,"open":true,"calls":1}]`)
}

// The commands that are shown can be copied: they do what they say, on that store.
func TestShownCommandsWork(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	here := newShell(t, "")
	for i, verb := range []string{"resolve", "decline", "release", "redrive"} {
		key := fmt.Sprintf(`it's "key" %d`, i)
		put(t, s.Store, dead("tenant a", key))
		shown := here.runs("keys", "show", "--store", url, "tenant a", key).exits(0)
		line := regexp.MustCompile(`(?m)^  retrysafe (keys ` + verb + ` .*)$`).FindStringSubmatch(shown.out)
		if line == nil {
			t.Fatalf("no command is shown for %s\n%s", verb, shown.out)
		}
		here.runs(append(shellWords(line[1]), "--yes")...).exits(0)
	}
	put(t, s.Store, record("tenant-a", "done", retrysafe.StateCompleted))
	shown := here.runs("keys", "show", "--store", url, "tenant-a", "done").exits(0)
	for _, line := range regexp.MustCompile(`(?m)^  retrysafe (keys .*)$`).FindAllStringSubmatch(shown.out, -1) {
		here.runs(append(shellWords(line[1]), "--yes")...)
	}
	if r := load(t, s.Store, "tenant-a", "done"); r.State != retrysafe.StateRetryable {
		t.Errorf("the key is %s", r.State)
	}
}

// shellWords splits a line as a shell does, '\” included.
func shellWords(line string) (all []string) {
	const quote = "\x00"
	line = strings.ReplaceAll(line, `'\''`, quote)
	for i, part := range strings.Split(line, "'") {
		if i%2 == 0 {
			all = append(all, strings.Fields(part)...)
		} else {
			all = append(all, strings.ReplaceAll(part, quote, "'"))
		}
	}
	return all
}

func TestHash(t *testing.T) {
	t.Parallel()
	if got := newShell(t, "").run("keys hash 8e03978e-40d5-43dd-bc93-6894a57f9324").exits(0); got.out != retrysafe.HashKey("8e03978e-40d5-43dd-bc93-6894a57f9324")+"\n" {
		t.Errorf("keys hash = %q", got.out)
	}
}

// hostile is what would command a terminal, a spreadsheet or a reader.
const hostile = "=cmd|' /C calc'!A0\x1b]0;owned\x07\x1b[31m\r\n\u009b31m\u202e\x7f\xff\u200b"

// Whatever somebody has put into a store, nothing of it commands a terminal.
func TestW81_NothingCommandsATerminal(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	r := dead(hostile, hostile)
	r.Operation, r.Reason, r.ProviderRef = hostile, hostile, hostile
	r = r.Noted(hostile, hostile)
	put(t, s.Store, r)
	done := record(hostile, hostile+"2", retrysafe.StateCompleted)
	done.Result = &retrysafe.Result{Status: 200, Header: map[string][]string{"X-" + hostile: {hostile}}, Body: []byte(hostile)}
	put(t, s.Store, done)
	letters(t, s, hostile)
	here := newShell(t, url)
	var all []*printed
	for _, format := range []string{"table", "json", "csv"} {
		all = append(all,
			here.run("keys list --long --format "+format),
			here.run("keys list --hash --format "+format),
			here.run("outbox list --long --format "+format),
			here.run("outbox list --failing --format "+format))
	}
	named := fmt.Sprintf("%q", hostile)
	for _, format := range []string{"text", "json"} {
		all = append(all,
			here.runs("keys", "show", "--body", "--format", format, hostile, hostile),
			here.runs("keys", "show", "--body", "--format", format, named, fmt.Sprintf("%q", hostile+"2")),
			here.run("outbox show 1 --body --format "+format),
			here.run("outbox show 2 --body --format "+format),
			here.runs("keys", "redrive", "--format", format, "--why", "twice "+format, hostile, hostile),
			here.runs("keys", "resolve", "--format", format, "--status", "200", "--why", "x", "--yes", "--revision", "1", hostile, hostile))
	}
	all = append(all,
		here.runs("keys", "show", hostile, "other"+hostile),
		here.runs("keys", "list", "--scope", hostile),
		here.runs("keys", "list", "--state", hostile),
		here.runs("keys", "list", "--store", "sqlite:"+hostile),
		here.runs("keys", "list", "--store", hostile),
		here.runs("keys", hostile),
		here.runs("keys", "release", "--why", hostile, "--yes", hostile, hostile),
		here.runs("keys", "hash", hostile),
		here.typing("no\n").runs("keys", "release", "--why", "x", hostile, hostile),
		here.runs("keys", "audit", "--long"), here.runs("keys", "audit", "--format", "json"), here.runs("keys", "audit", "--format", "csv"),
		here.runs("config", "validate", hostile), here.runs("config", "genkeys", "none/"+hostile))
	for _, p := range all {
		for _, c := range p.out + p.err {
			if c != '\n' && (c < ' ' || c >= 0x7f && c < 0xa0 || c == '\u202e' || c == '\u200b' || c == '\ufffd') {
				t.Errorf("retrysafe %q prints %U\nstdout: %q\nstderr: %q", p.line, c, p.out, p.err)
				break
			}
		}
	}
	// What is shown names the key: it can be given so.
	got := here.runs("keys", "show", named, named).exits(0)
	if strings.Contains(got.out, "owned\a") || !strings.Contains(got.out, `\x1b]0;owned\a`) {
		t.Errorf("the key is shown as %q", got.out)
	}
	rows, err := csv.NewReader(strings.NewReader(here.run("keys list --long --format csv").exits(0).out)).ReadAll()
	must(t, err)
	for _, row := range rows {
		for _, cell := range row {
			if cell != "-" && strings.ContainsAny(cell[:min(1, len(cell))], "=+-@\t\r") {
				t.Errorf("a cell is a formula: %q", cell)
			}
		}
	}
}

// A key that is no text is shown, found and acted on all the same.
func TestKeysOfAnyBytes(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	here := newShell(t, url)
	for i, name := range []string{"\x01\xff", `"quoted"`, `back\slash`, " space ", "'", "-dash", "ü", `\x41`} {
		put(t, s.Store, dead(name, fmt.Sprint(name, i)))
		listed := here.runs("keys", "list", "--format", "json", "--scope", fmt.Sprintf("%q", name)).exits(0)
		if strings.Count(listed.out, "\n") != 1 {
			t.Errorf("the scope %q is not found: %s", name, listed.out)
		}
		shown := here.runs("keys", "show", "--", fmt.Sprintf("%q", name), fmt.Sprintf("%q", fmt.Sprint(name, i))).exits(0)
		line := regexp.MustCompile(`(?m)^  retrysafe (keys redrive .*)$`).FindStringSubmatch(shown.out)
		args := shellWords(line[1])
		here.runs(args...).exits(0)
	}
}

func TestOnPostgres(t *testing.T) {
	t.Parallel()
	url, s := opened(t, testservers.Shared(t)+"&schema=retry")
	put(t, s.Store, dead("tenant-a", "dead"))
	here := newShell(t, url)
	here.run("migrate status").exits(0).says("keys     1")
	here.run("keys list --dead").exits(0).says("unknown, dead")
	here.run("keys show tenant-a dead").exits(0).says("keys resolve")
	line := fmt.Sprintf("keys resolve tenant-a dead --status 201 --body paid --why found --yes --revision %d", load(t, s.Store, "tenant-a", "dead").Revision)
	here.run(line).exits(0).says("every retry gets its 201")
	here.run(line).exits(0).says("done before")
	here.run("keys audit").exits(0).says("resolve", "done", "found")
	here.run("reconcile run").exits(0)
	if r := load(t, s.Store, "tenant-a", "dead"); r.State != retrysafe.StateCompleted || string(r.Result.Body) != "paid" {
		t.Errorf("the record is %s", r.State)
	}
}

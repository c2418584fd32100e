package keys_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/internal/deployment"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/sealed"
)

func TestShowExplainsEveryState(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	everyState(t, s.Store)
	here := clitest.NewShell(t, url)
	for _, key := range []string{"tenant-a accepted", "tenant-a in_progress", "tenant-a completed", "tenant-a retryable", "tenant-a unknown", "tenant-a expired", "tenant-a dead", "tenant-a disputed", "tenant-a lapsed", "tenant-b late", "tenant-b omitted"} {
		here.Run("keys show " + key).Exits(0).Golden("show-" + strings.Fields(key)[1] + ".txt")
	}
	here.Run("keys show tenant-a completed --body --long").Exits(0).Golden("show-body.txt")
	here.Run("keys show tenant-a dead --format json").Exits(0).Golden("show.json")
	here.Run("keys show tenant-a completed --body --format json").Exits(0).Says(`"body":"{\"id\":\"pay_1\"}"`)
	review := clitest.Record("tenant-a", "review", retrysafe.StateUnknown)
	review.Result = &retrysafe.Result{Status: 504}
	clitest.Put(t, s.Store, review)
	here.Run("keys show tenant-a review").Exits(0).Says("unknown, answered", "Retries get a stored 504", "under review", "retrysafe keys resolve", "retrysafe keys release").Hides("Evidence says", "retrysafe keys decline")
	review.Key, review.Inquiry.Disputed = "disputed-review", true
	clitest.Put(t, s.Store, review)
	here.Run("keys show tenant-a disputed-review").Exits(0).Says("unknown, answered, disputed", "Evidence says that it has happened")
	for says, policy := range map[string]struct {
		lapse   retrysafe.Lapse
		effects retrysafe.Effects
		request []byte
	}{
		"policy: retries get a 500, and whether it happened is": {retrysafe.LapseFail, retrysafe.EffectsInTx, nil},
		"retryable, so that the next request":                   {retrysafe.LapseResume, retrysafe.EffectsKeyed, nil},
		"accepted again, for a worker":                          {retrysafe.LapseRerun, retrysafe.EffectsKeyed, []byte("request")},
	} {
		lapsed := clitest.Record("tenant-c", policy.lapse.String(), retrysafe.StateInProgress)
		lapsed.Term, lapsed.Lapse, lapsed.Effects, lapsed.Request = 0, policy.lapse, policy.effects, policy.request
		clitest.Put(t, s.Store, lapsed)
		here.Run("keys show tenant-c", lapsed.Key).Exits(0).Says(says)
	}
	here.Run("keys show tenant-a nothing").Exits(1).InOneLine().Says("there is no key nothing in the scope tenant-a")
}

// In the store of a gateway the key that its service got is shown: a provider may know no
// other. Other programs derive their keys by names of their own.
func TestShowHasTheKeyOfTheService(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	ref := clitest.Put(t, s.Store, clitest.Dead("tenant-a", "k")).Ref
	here, key := clitest.NewShell(t, url), retrysafe.DownstreamKey(config.Namespace, ref, config.UpstreamCall)
	here.Run("keys show tenant-a k").Exits(0).Hides("downstream", key)
	noted := clitest.Record("", "", retrysafe.StateCompleted)
	noted.Ref = deployment.Ref()
	clitest.Put(t, s.Store, noted)
	here.Run("keys show tenant-a k").Exits(0).Says("downstream key  " + key)
	here.Run("keys show tenant-a k -o json").Exits(0).Says(`"downstream_key":"` + key + `"`)
}

// How far an operation has come is shown by the names of its steps.
func TestShowHasTheSteps(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	engine, err := retrysafe.New(s.Store, &retrysafe.Options{Policy: retrysafe.Policy{Lapse: retrysafe.LapseResume, Effects: retrysafe.EffectsKeyed}})
	clitest.Must(t, err)
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
	clitest.NewShell(t, url).Run("keys show t k").Exits(0).Says("ride, then charge (called 1 time, outcome unknown)")
	clitest.NewShell(t, url).Run("keys show t k --format json").Exits(0).Says(`"steps":[{"name":"ride"},{"name":"charge","effect":true,"open":true,"calls":1}]`)
}

// The trace of the first attempt is shown as its id, and not among the notes.
func TestShowHasTheTrace(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	r := clitest.Dead("tenant-a", "k")
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	r.Inquiry.Notes = append([]retrysafe.Note{{By: "trace", State: retrysafe.StateInProgress, Text: "00-" + id + "-00f067aa0ba902b7-01"}}, r.Inquiry.Notes...)
	clitest.Put(t, s.Store, r)
	here := clitest.NewShell(t, url)
	here.Run("keys show tenant-a k").Exits(0).Says("trace", id+", of the first attempt").Hides("by trace", "00f067aa0ba902b7")
	here.Run("keys show tenant-a k -o json").Exits(0).Says(`"trace":"` + id + `"`).Hides("00f067aa0ba902b7")
}

// The commands that are shown can be copied: once their places are filled in they do what
// they say, on that store.
func TestShownCommandsWork(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	here := clitest.NewShell(t, "")
	for i, verb := range []string{"resolve", "decline", "release", "redrive"} {
		key := fmt.Sprintf(`it's "key" %d`, i)
		clitest.Put(t, s.Store, clitest.Dead("tenant a", key))
		shown := here.RunArgs("keys", "show", "--store", url, "tenant a", key).Exits(0)
		line := regexp.MustCompile(`(?m)^  retrysafe (keys ` + verb + ` .*)$`).FindStringSubmatch(shown.Out)
		if line == nil {
			t.Fatalf("no command is shown for %s\n%s", verb, shown.Out)
		}
		here.RunArgs(append(shellWords(filledIn(line[1])), "--yes")...).Exits(0)
	}
	clitest.Put(t, s.Store, clitest.Record("tenant-a", "done", retrysafe.StateCompleted))
	shown := here.RunArgs("keys", "show", "--store", url, "tenant-a", "done").Exits(0)
	for _, line := range regexp.MustCompile(`(?m)^  retrysafe (keys .*)$`).FindAllStringSubmatch(shown.Out, -1) {
		here.RunArgs(append(shellWords(filledIn(line[1])), "--yes")...)
	}
	if r := clitest.Load(t, s.Store, "tenant-a", "done"); r.State != retrysafe.StateRetryable {
		t.Errorf("the key is %s", r.State)
	}
}

// filledIn puts something into the places of a command that is shown.
func filledIn(line string) string { return strings.ReplaceAll(line, "...", "ch_17") }

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

// A key that is no text is shown, found and acted on all the same.
func TestKeysOfAnyBytes(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	here := clitest.NewShell(t, url)
	for i, name := range []string{"\x01\xff", `"quoted"`, `back\slash`, " space ", "'", "-dash", "ü", `\x41`} {
		clitest.Put(t, s.Store, clitest.Dead(name, fmt.Sprint(name, i)))
		listed := here.RunArgs("keys", "list", "--format", "json", "--scope", fmt.Sprintf("%q", name)).Exits(0)
		if strings.Count(listed.Out, "\n") != 1 {
			t.Errorf("the scope %q is not found: %s", name, listed.Out)
		}
		shown := here.RunArgs("keys", "show", "--", fmt.Sprintf("%q", name), fmt.Sprintf("%q", fmt.Sprint(name, i))).Exits(0)
		line := regexp.MustCompile(`(?m)^  retrysafe (keys redrive .*)$`).FindStringSubmatch(shown.Out)
		args := shellWords(filledIn(line[1]))
		here.RunArgs(args...).Exits(0)
	}
}

func TestOnPostgres(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t) + "&schema=retry"
	s := clitest.Open(t, url)
	clitest.Put(t, s.Store, clitest.Dead("tenant-a", "dead"))
	here := clitest.NewShell(t, url)
	here.Run("migrate status").Exits(0).Says("keys     1")
	here.Run("keys list --dead").Exits(0).Says("unknown, dead")
	here.Run("keys show tenant-a dead").Exits(0).Says("keys resolve")
	line := fmt.Sprintf("keys resolve tenant-a dead --status 201 --body paid --why 'found at the provider' --yes --revision %d", clitest.Load(t, s.Store, "tenant-a", "dead").Revision)
	here.Run(line).Exits(0).Says("every retry gets its 201")
	here.Run(line).Exits(0).Says("done before")
	here.Run("keys audit").Exits(0).Says("resolve", "done", "found")
	here.Run("reconcile run").Exits(0)
	if r := clitest.Load(t, s.Store, "tenant-a", "dead"); r.State != retrysafe.StateCompleted || string(r.Result.Body) != "paid" {
		t.Errorf("the record is %s", r.State)
	}
}

// A record that is sealed with a missing key is shown as far as it can be, and every
// action on it is refused.
func TestUnreadableRecords(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	store, old := clitest.Seal(t, s.Store)
	clitest.Put(t, store, clitest.Dead("tenant-a", "old"))
	rotated := filepath.Join(t.TempDir(), "keys.json")
	text, err := os.ReadFile(old)
	clitest.Must(t, err)
	clitest.Must(t, os.WriteFile(rotated, text, 0o600))
	clitest.NewShell(t, "").Run("config genkeys --add", rotated).Exits(0)
	clitest.NewShell(t, "").Run("config genkeys --use 2", rotated).Exits(0)
	ring, err := sealed.LoadKeyring(rotated)
	clitest.Must(t, err)
	newer, err := sealed.New(s.Store, ring)
	clitest.Must(t, err)
	clitest.Put(t, newer, clitest.Dead("tenant-a", "new"))

	here := clitest.NewShell(t, url).With("RETRYSAFE_KEYS_FILE", old)
	here.Run("keys list").Exits(0).Says("old", "unreadable")
	listed := here.Run("keys list --format json").Exits(0)
	var handle []string
	for line := range strings.Lines(listed.Out) {
		var r struct {
			Scope, Key string
			Unreadable bool
		}
		clitest.Must(t, json.Unmarshal([]byte(line), &r))
		if r.Unreadable {
			handle = []string{r.Scope, r.Key}
		}
	}
	here.Run("keys show", handle...).Exits(0).Says("It cannot be read", "key 2").Hides("What you may do")
	here.Run("keys show tenant-a new").Exits(0).Says("It cannot be read")
	here.Run("keys export tenant-a new").Exits(0).Says(`"unreadable":true`)
	here.Run("keys release --why x --yes", handle...).Exits(1).Says("cannot be read").InOneLine()
	here.Run("keys release --why x --yes tenant-a new").Exits(1).Says("cannot be read").InOneLine()
	here.Run("keys quarantine --dry-run").Exits(0)
	here.Run("keys release --state unknown --dry-run").Exits(0).Says("would release 1 key; 1 record cannot be read, and left out")
	here.With("RETRYSAFE_KEYS_FILE", rotated).Run("keys list").Exits(0).Says("old", "new").Hides("unreadable")
}

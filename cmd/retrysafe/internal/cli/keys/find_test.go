package keys_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

func TestShowFindsTheScope(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	for _, scope := range []string{"tenant-a", "tenant-b", "tenant\nc"} {
		clitest.Put(t, s.Store, clitest.Dead(scope, "shared"))
	}
	clitest.Put(t, s.Store, clitest.Dead("tenant-b", "only"))
	here := clitest.NewShell(t, url)
	here.Run("keys show only").Exits(0).Says("tenant-b")
	here.Run("keys show", retrysafe.HashKey("only")).Exits(0).Says("tenant-b", "only")
	here.Run("keys show shared --scope tenant-b").Exits(0).Says("tenant-b")
	here.Run("keys show --scope tenant-a", retrysafe.HashKey("shared")).Exits(0).Says("tenant-a")
	here.Run("keys show shared").Exits(2).Says(`the key shared is in 3 scopes: "tenant\nc", tenant-a, tenant-b`, "--scope").InOneLine()
	here.Run("keys show nothing").Exits(1).Says("there is no key nothing in any scope").InOneLine()
	here.Run("keys show only --scope tenant-a").Exits(1).Says("there is no key only in the scope tenant-a").InOneLine()
	here.Run("keys show tenant-b only --scope tenant-b").Exits(2).Says("the scope is there twice").InOneLine()
	here.Run("keys release only --why x --yes").Exits(0).Says("tenant-b only: released")
	here.Run("keys redrive shared --why x").Exits(2).Says("is in 3 scopes").InOneLine()
}

func TestListSortsAndSelects(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	for i := range 9 {
		r := clitest.Record("t", fmt.Sprint((i*4)%9), retrysafe.StateUnknown)
		r.Operation = fmt.Sprintf("POST /%d", i%3)
		clitest.Put(t, s.Store, r)
	}
	here := clitest.NewShell(t, url)
	keys := func(line string) (all string) {
		for text := range strings.Lines(here.Run("keys list -o json " + line).Exits(0).Out) {
			var r struct{ Key string }
			clitest.Must(t, json.Unmarshal([]byte(text), &r))
			all += r.Key
		}
		return all
	}
	for line, want := range map[string]string{
		"--sort created":                       "048372615",
		"--sort created --reverse --limit 3":   "516",
		"--sort updated --limit 2":             "04",
		"--sort deadline --limit 1":            "0",
		"--sort created --operation 'POST /1'": "471",
		"--operation 'PUT*'":                   "",
		"--older-than 1h":                      "",
		"--since 1h --sort created":            "048372615",
		"--since 1h --until 30m":               "",
		"--tenant other":                       "",
	} {
		if got := keys(line); got != want {
			t.Errorf("keys list %s: %s, want %s", line, got, want)
		}
	}
	// The three times of a record are not one.
	here.Run("keys redrive t 5 --why x").Exits(0)
	here.Run("keys redrive t 0 --why x").Exits(0)
	for line, want := range map[string]string{
		"--sort created --limit 2": "04", "--sort updated --reverse --limit 3": "051", "--sort deadline --limit 3": "504", "--sort created --key-hash " + retrysafe.HashKey("4"): "4",
	} {
		if got := keys(line); got != want {
			t.Errorf("keys list %s: %s, want %s", line, got, want)
		}
	}
	here.Run("keys list --sort created --limit 10001").Exits(2).Says("more than can be sorted").InOneLine()
	here.Run("keys list --sort created --all").Exits(2).Says("--sort is for the first keys").InOneLine()
	here.Run("keys list --reverse").Exits(2).Says("--reverse is for --sort").InOneLine()
	here.Run("keys list --limit 0").Exits(2).Says("is not above zero").InOneLine()
	here.Run("keys list --sort created --limit 3").Exits(0).Says("3 of 9 keys")
	here.Run("keys list --sort created --operation x").Exits(0).Says("no keys")
}

func TestTailFollowsChanges(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	clitest.Put(t, s.Store, clitest.Dead("t", "before"))
	env := []string{"RETRYSAFE_STORE=" + url}
	all := clitest.StartIn(t, env, "keys", "tail", "--every", "20ms")
	hashed := clitest.StartIn(t, env, "keys", "tail", "--every", "20ms", "--hash", "--state", "retryable", "-o", "json", "--since", "1h")
	all.Until("following the changes")
	// What changes until the first reading may not be shown, so it changes until it is.
	for i := 0; !strings.Contains(all.Output.String(), "unknown"); i++ {
		clitest.Put(t, s.Store, clitest.Record("t", fmt.Sprintf("first-%d", i), retrysafe.StateUnknown))
		select {
		case <-all.Ended:
			t.Fatalf("it ended:\n%s", &all.Output)
		default:
		}
	}
	clitest.NewShell(t, url).Run("keys release t before --why gone --yes").Exits(0)
	all.Until("t before  retryable  POST /charges, attempt 1")
	hashed.Until(`"key_hash":"` + retrysafe.HashKey("before") + `"`)
	for _, p := range []*clitest.Process{all, hashed} {
		p.Signal(os.Interrupt)
		p.Exits(0)
	}
	if out := hashed.Output.String(); strings.Contains(out, `"before"`) || strings.Count(out, "\n") != 1 {
		t.Errorf("with --hash and --state it says %s", out)
	}
	if out := all.Output.String(); strings.Count(out, "before  retryable") != 1 || strings.Contains(out, "t before  unknown") {
		t.Errorf("it says %s", out)
	}
}

func TestExportHidesWhatIsSecret(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	r := clitest.Record("tenant-secret", "key-secret", retrysafe.StateCompleted)
	r.Result.Header["X-Secret"] = []string{"header-secret"}
	r.Result.Body = []byte("body-secret")
	r.AddNote(retrysafe.Note{By: "resolver stripe", Text: "found ch_17"})
	clitest.Put(t, s.Store, r)
	accepted := clitest.Record("tenant-secret", "waiting", retrysafe.StateAccepted)
	accepted.Request = []byte("request-secret")
	clitest.Put(t, s.Store, accepted)
	here := clitest.NewShell(t, url)
	here.Run("keys erase tenant-secret waiting --why x --yes").Exits(1)
	here.Run("keys forget tenant-secret nothing --why x --yes --revision 7").Exits(1)
	conf := filepath.Join(t.TempDir(), "retrysafe.yaml")
	clitest.Must(t, os.WriteFile(conf, []byte("upstream: http://127.0.0.1:1\nstore: "+url+"\ntenant: none\n"), 0o600))
	out := here.Run("keys export key-secret --config", conf).Exits(0).
		Says(`"bundle":1`, `"kind":"sqlite"`, `"schema_version":`, `"go":"go`, "found ch_17", `"key_hash":"`+retrysafe.HashKey("key-secret"), `"X-Secret"`, `"file_sha256":"`).
		Hides("key-secret", "tenant-secret", "header-secret", "body-secret", `"verb":"erase"`, `"verb":"forget"`) // they are of other keys
	if strings.Count(out.Out, "\n") != 1 {
		t.Errorf("it is not one line: %s", out.Out)
	}
	here.Run("keys export tenant-secret waiting").Exits(0).Says(`"verb":"erase"`, `"code":"live"`).Hides("request-secret", "tenant-secret", "waiting\"")
	here.Run("keys export key-secret --with-bodies").Exits(0).Says("key-secret", "tenant-secret", "header-secret", "body-secret")
	odd := clitest.Record("\xff-scope-secret", "\xff-odd-secret", retrysafe.StateCompleted)
	clitest.Put(t, s.Store, odd)
	here.Run("keys export", retrysafe.HashKey(odd.Key)).Exits(0).Says(`"scope_hash":"`+retrysafe.HashKey(odd.Scope)).
		Hides("scope-secret", "odd-secret", base64.StdEncoding.EncodeToString([]byte(odd.Scope)), base64.StdEncoding.EncodeToString([]byte(odd.Key)))
	here.Run("keys export nothing").Exits(1).InOneLine()
}

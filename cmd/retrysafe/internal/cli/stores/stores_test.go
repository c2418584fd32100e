package stores_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// A command that only reads does not create a store that is not there.
func TestLookingMakesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	here := clitest.NewShell(t, "sqlite:"+filepath.Join(dir, "none.db"))
	for _, line := range []string{"keys list", "keys show a b", "keys audit", "keys release a b --why x --yes", "outbox list", "migrate status", "reconcile run", "keys quarantine --dry-run"} {
		here.Run(line).Exits(3).InOneLine()
	}
	here.Run("keys copy --yes", "sqlite:"+filepath.Join(dir, "none.db"), "sqlite:"+filepath.Join(dir, "other.db")).Exits(3).InOneLine()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("there is %v, %v", left, err)
	}
}

// The command line counts more than a configuration, which counts more than the
// environment. A command to copy has no password.
func TestStoreIsTheOneThatIsNamed(t *testing.T) {
	t.Parallel()
	urls := map[string]string{}
	for _, name := range []string{"flag", "config", "environment"} {
		url, s := clitest.SQLite(t)
		urls[name] = url
		clitest.Put(t, s.Store, clitest.Dead("tenant", "key-of-"+name))
	}
	config := filepath.Join(t.TempDir(), "gateway.yaml")
	clitest.Must(t, os.WriteFile(config, fmt.Appendf(nil, "upstream: http://127.0.0.1:9000\ntenant: bearer\nstore: %q\n", urls["config"]), 0o600))
	here := clitest.NewShell(t, urls["environment"])
	for name, line := range map[string]string{"environment": "", "config": " --config " + config, "flag": " --config " + config + " --store " + urls["flag"]} {
		got := here.Run("keys list -o csv" + line).Exits(0).Says("key-of-" + name)
		if strings.Count(got.Out, "key-of-") != 1 {
			t.Errorf("%s: %s", name, got.Out)
		}
		here.Run("keys show tenant key-of-" + name + line).Exits(0).Says("retrysafe keys release")
	}
	for url, want := range map[string]string{
		"postgres://app:hunter2@db/app": ` --store "$RETRYSAFE_STORE" --keys-file 'a b'`, "postgres://app@db/app": " --store postgres://app@db/app --keys-file 'a b'",
	} {
		l, err := (&stores.Flags{URL: url, KeysFile: "a b"}).Location(clitest.NewEnv())
		if err != nil || l.Repeat != want || strings.Contains(l.String(), "hunter2") {
			t.Errorf("%s is repeated as %s, %v", url, l.Repeat, err)
		}
	}
}

// A command that needs a configuration for its store alone needs no other variable of it.
func TestConfigurationNamesTheStoreWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	clitest.Put(t, s.Store, clitest.Dead("tenant", "a-key"))
	config := filepath.Join(t.TempDir(), "gateway.yaml")
	write := func(text string) {
		clitest.Must(t, os.WriteFile(config, []byte("upstream: http://127.0.0.1:9000\ntenant: bearer\n"+text), 0o600))
	}
	here := clitest.NewShell(t, "")
	write("store: '" + url + "'\nadmin: {listen: '127.0.0.1:0', token: '${ADMIN_TOKEN}'}\ndefaults: {lease: '${LEASE}'}\n")
	here.Run("keys list --config", config).Exits(0).Says("a-key")
	here.Run("config validate", config).Exits(2).Says("the environment has no ADMIN_TOKEN", "the environment has no LEASE")
	write("store: '${STORE}'\nadmin: {listen: '127.0.0.1:0', token: '${ADMIN_TOKEN}'}\n")
	here.Run("keys list --config", config).Exits(2).Says("store: the environment has no STORE").Hides("ADMIN_TOKEN").InOneLine()
	write("store: '" + url + "'\nencryption: {keys_file: '${KEYS}'}\n")
	here.Run("keys list --config", config).Exits(2).Says("encryption.keys_file: the environment has no KEYS").InOneLine()
}

// A parameter of a URL that the server does not know is named, with those that there are.
func TestUnknownParameterSaysWhatThereIs(t *testing.T) {
	t.Parallel()
	url := testservers.Shared(t)
	here := clitest.NewShell(t, "")
	for _, line := range []string{"keys list", "migrate up"} {
		here.Run(line+" --store", url+separator(url)+"schma=four").Exits(3).Says(`"schma"`, "schema, pgbouncer and anyserver").InOneLine()
	}
}

// separator returns what stands before another parameter of a URL.
func separator(url string) string {
	if strings.Contains(url, "?") {
		return "&"
	}
	return "?"
}

// A store that lacks a migration is not worked on, and says how it gets it.
func TestOlderSchemaIsMigratedFirst(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	_, err := s.Store.(*sqlitestore.Store).DB().ExecContext(t.Context(), `DELETE FROM retrysafe_schema WHERE version = (SELECT max(version) FROM retrysafe_schema)`)
	clitest.Must(t, err)
	here := clitest.NewShell(t, "")
	here.Run("keys list --store", url).Exits(3).Says("and this program needs", "retrysafe migrate up --store "+url).InOneLine()
	here.Run("migrate status --store", url).Exits(1).Says("apply them with: retrysafe migrate up --store " + url)
	here.Run("migrate status -o json --store", url).Exits(1).Says(`"pending":["`)
}

// Operators see through the seal with its keys, and without them nothing is shown or
// written.
func TestSealedStores(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	store, keys := clitest.Seal(t, s.Store)
	r := clitest.Put(t, store, clitest.Dead("tenant-a", "k"))
	bare, here := clitest.NewShell(t, url), clitest.NewShell(t, url).With("RETRYSAFE_KEYS_FILE", keys)
	for _, line := range []string{"keys list", "keys show tenant-a k", "keys audit", "keys release tenant-a k --why x --yes", "reconcile run", "keys quarantine --why x --yes"} {
		bare.Run(line).Exits(2).Says("are encrypted; name their keys").InOneLine().Hides("tenant-a")
	}
	here.Run("keys list").Exits(0).Says("tenant-a", "unknown, dead")
	bare.Run("keys list --keys-file", keys).Exits(0).Says("tenant-a")
	shown := bare.Run("keys show tenant-a k --keys-file", keys).Exits(0).Says("--keys-file " + keys)
	if !strings.Contains(shown.Out, "keys resolve --keys-file") {
		t.Errorf("the command to copy lacks the keys\n%s", shown.Out)
	}
	config := filepath.Join(t.TempDir(), "gateway.yaml")
	clitest.Must(t, os.WriteFile(config, fmt.Appendf(nil, "upstream: http://127.0.0.1:9000\ntenant: bearer\nstore: %q\nencryption: {keys_file: %q}\n", url, keys), 0o600))
	clitest.NewShell(t, "").Run("keys list --config", config).Exits(0).Says("tenant-a")
	here.Run(fmt.Sprintf("keys resolve tenant-a k --status 201 --body paid --why 'found at the provider' --yes --revision %d", r.Revision)).Exits(0)
	if r := clitest.Load(t, store, "tenant-a", "k"); r.State != retrysafe.StateCompleted || string(r.Result.Body) != "paid" {
		t.Errorf("it is %s", r.State)
	}
	list, err := s.Store.List(t.Context(), retrysafe.Query{})
	clitest.Must(t, err)
	for i := range list {
		if len(list[i].KeyText) == 0 || strings.Contains(string(storekit.AppendRecord(nil, &list[i])), "found at the provider") {
			t.Errorf("there is plain text below: %+v", list[i])
		}
	}

	_, others := clitest.Seal(t, s.Store)
	bare.Run("keys list --keys-file", others).Exits(2).Says("are not those of").InOneLine()
	bare.With("RETRYSAFE_KEYS_FILE", others).Run("keys list --keys-file", keys).Exits(0).Says("tenant-a")
	bare.With("RETRYSAFE_KEYS_FILE", others).Run("keys list --config", config).Exits(0).Says("tenant-a")
	bare.Run("keys list --config "+config+" --keys-file", others).Exits(2).Says("are not those of").InOneLine()
	plainURL, plain := clitest.SQLite(t)
	clitest.Put(t, plain.Store, clitest.Dead("tenant-a", "k"))
	clitest.NewShell(t, plainURL).Run("keys list --keys-file", keys).Exits(2).Says("are not those of").InOneLine()
	clitest.Must(t, os.Chmod(keys, 0o644))
	here.Run("keys list").Exits(0).Says("warning: every user of this machine may read")
	clitest.Must(t, os.WriteFile(keys, []byte("{}"), 0o600))
	here.Run("keys list").Exits(2).Says("config genkeys").InOneLine()
}

package e2e_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// newStores returns, for each kind of store, what makes the URL of an empty one.
var newStores = map[string]func(t *testing.T) string{
	"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "keys.db") },
	"postgres": func(t *testing.T) string { return testservers.Shared(t) },
}

const (
	reloaded    = "configuration reloaded"
	notReloaded = "configuration not reloaded, the old one serves on"
)

// write replaces the gateway's file in one step.
func (g *gateway) write(conf string) {
	g.t.Helper()
	next := g.conf + ".next"
	if err := os.WriteFile(next, []byte("listen: "+g.addr+"\n"+conf), 0o600); err != nil {
		g.t.Fatal(err)
	}
	if err := os.Rename(next, g.conf); err != nil {
		g.t.Fatal(err)
	}
}

// edit replaces the file of a gateway that runs, and waits until it says what it makes of
// that.
func (g *gateway) edit(conf, says string) (said string) {
	g.t.Helper()
	before := g.log.String()
	g.write(conf)
	return g.await(before, says)
}

// await waits until the log has a line with a text that was not there before, and
// returns what was logged since.
func (g *gateway) await(before, says string) (said string) {
	g.t.Helper()
	eventually(g.t, says, func() bool {
		said = strings.TrimPrefix(g.log.String(), before)
		at := strings.Index(said, says)
		return at >= 0 && strings.Contains(said[at:], "\n")
	})
	return said
}

// replays makes sure that a key has the answer that it got first, and that the service
// was called once.
func (g *gateway) replays(s *service, key, body string, first answer) {
	g.t.Helper()
	got, err := g.post(g.t.Context(), "/payments", key, body)
	for err == nil && got.status == http.StatusServiceUnavailable { // the store is slow
		got, err = g.post(g.t.Context(), "/payments", key, body)
	}
	if err != nil || got.body != first.body || got.header.Get("Idempotent-Replayed") != "true" {
		g.t.Errorf("the answer was %s, and is %+v, %v", first.body, got, err)
	}
	if n, _ := s.called(body); n != 1 {
		g.t.Errorf("%s ran %d times", key, n)
	}
}

// The store is edited in the gateway's file: the reload is refused, with a line that
// names the setting and the remedy, and the key does not run again. After the remedy the
// same file is accepted. The gateway is killed in between.
func TestStoreEditedInTheFileDoesNotRunAKeyAgain(t *testing.T) {
	t.Parallel()
	const key, body = "a-key-that-ran-once", `{"amount": 1}`
	for name, newStore := range newStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, one, two := newService(t), newStore(t), newStore(t)
			g := newGateway(t, conf(s, one))
			first, err := g.post(t.Context(), "/payments", key, body)
			if err != nil || first.status != http.StatusCreated {
				t.Fatalf("%+v, %v", first, err)
			}

			said := g.edit(conf(s, two), notReloaded)
			for _, part := range []string{"level=ERROR", "store: the keys of this gateway are in", "A retry of any of them would run again", "retrysafe keys copy", "restart the gateway"} {
				if !strings.Contains(said, part) {
					t.Errorf("the log does not say %q:\n%s", part, said)
				}
			}
			if path, ok := strings.CutPrefix(two, "sqlite:"); ok {
				if _, err := os.Stat(path); err == nil {
					t.Error("a refused reload has created a store")
				}
			}
			g.replays(s, key, body, first)
			before := g.log.String()
			if err := syscall.Kill(g.pid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			g.await(before, notReloaded)
			g.replays(s, key, body, first)

			g.edit(conf(s, one), reloaded)
			g.replays(s, key, body, first)
			g.kill()
			g.start()
			g.replays(s, key, body, first)

			g.edit(conf(s, two), notReloaded)
			if out, err := exec.CommandContext(t.Context(), built(t), "keys", "copy", "--yes", one, two).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			before = g.log.String()
			if err := syscall.Kill(g.pid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			g.await(before, reloaded)
			g.replays(s, key, body, first)
			g.kill()
			g.start()
			g.replays(s, key, body, first)
		})
	}
}

// A store of another deployment is refused in a reload too, although it has an identity.
func TestStoreOfAnotherDeploymentIsRefused(t *testing.T) {
	t.Parallel()
	const key, body = "a-key-that-ran-once", `{"amount": 1}`
	for name, newStore := range newStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, one, two := newService(t), newStore(t), newStore(t)
			g := newGateway(t, conf(s, one))
			newGateway(t, conf(s, two))
			first, err := g.post(t.Context(), "/payments", key, body)
			if err != nil || first.status != http.StatusCreated {
				t.Fatalf("%+v, %v", first, err)
			}
			if said := g.edit(conf(s, two), notReloaded); !strings.Contains(said, "belongs to another deployment") {
				t.Errorf("it says\n%s", said)
			}
			g.replays(s, key, body, first)
		})
	}
}

// Settings under which no stored key would be found are refused in a reload and at the
// start, with their names; --adopt-identity lets a start through, and is logged.
func TestSettingsThatFindOtherRecordsAreRefused(t *testing.T) {
	t.Parallel()
	const key, body = "a-key-that-ran-once", `{"amount": 1}`
	for name, newStore := range newStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, store := newService(t), newStore(t)
			g := newGateway(t, conf(s, store))
			first, err := g.post(t.Context(), "/payments", key, body)
			if err != nil || first.status != http.StatusCreated {
				t.Fatalf("%+v, %v", first, err)
			}
			other := strings.Replace(conf(s, store, "profile: stripe", "defaults: { key_header: X-Request-Id }"), "from: bearer", "from: none", 1)
			differences := []string{
				"tenant is bearer in the store, and none in the configuration", "profile is ietf in the store, and stripe in the configuration",
				"defaults.key_header is Idempotency-Key in the store, and X-Request-Id in the configuration", "--adopt-identity",
			}
			said := g.edit(other, notReloaded)
			for _, part := range append(differences, "level=ERROR", "restart with --adopt-identity") {
				if !strings.Contains(said, part) {
					t.Errorf("the log does not say %q:\n%s", part, said)
				}
			}
			g.replays(s, key, body, first)

			g.kill()
			out, err := exec.CommandContext(t.Context(), built(t), "gateway", "--config", g.conf).CombinedOutput()
			if code := exitCode(err); code != 2 || strings.Count(string(out), "\n") != 1 {
				t.Errorf("it ended with %d:\n%s", code, out)
			}
			for _, part := range differences {
				if !strings.Contains(string(out), part) {
					t.Errorf("it does not say %q:\n%s", part, out)
				}
			}
			out, err = exec.CommandContext(t.Context(), built(t), "config", "validate", "--strict", g.conf).CombinedOutput()
			if code := exitCode(err); code != 1 || !strings.Contains(string(out), "tenant is bearer in the store, and none in the configuration") {
				t.Errorf("config validate ended with %d:\n%s", code, out)
			}

			g.flags = []string{"--adopt-identity"}
			before := g.log.String()
			g.start()
			said = g.await(before, "by --adopt-identity")
			if !strings.Contains(said, "level=WARN") || !strings.Contains(said, "tenant is bearer in the store") || !strings.Contains(said, "by=\"gateway on ") {
				t.Errorf("it says\n%s", said)
			}
			g.kill()
			g.flags = nil
			g.start() // they are the store's settings now
		})
	}
}

// Two gateways with the same settings, in another order, are one deployment; and a URL
// that says the same store differently is the same store.
func TestSameSettingsAreOneDeployment(t *testing.T) {
	t.Parallel()
	s, url := newService(t), testservers.Shared(t)
	routes := []string{`  - { match: "POST /a", key_header: X-A }`, `  - { match: "POST /b", scope: operation }`}
	newGateway(t, conf(s, url, routes[0], routes[1]))
	g := newGateway(t, conf(s, url, routes[1], routes[0]))
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	g.edit(conf(s, url+separator+"application_name=another", routes...), reloaded)
}

// The list of compared fields changes in a reload: retries of keys that were stored under
// the former list still match, and new keys are compared by the new one.
func TestChangedFieldsKeepLiveKeys(t *testing.T) {
	t.Parallel()
	for name, newStore := range newStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, store := newService(t), newStore(t)
			g := newGateway(t, conf(s, store))
			post := func(key, body string, status int, replayed bool) {
				t.Helper()
				got, err := g.post(t.Context(), "/payments", key, body)
				if err != nil || got.status != status || got.header.Get("Idempotent-Replayed") == "true" != replayed {
					t.Errorf("%s %s: %+v, %v; want %d, replayed %v", key, body, got, err, status, replayed)
				}
			}
			stored := func(key, sentAt string) (string, string) {
				return key, fmt.Sprintf(`{"key": %q, "sent_at": %s}`, key, sentAt)
			}
			a, one := stored("compared-by-everything", "1")
			_, two := stored("compared-by-everything", "2")
			post(a, one, http.StatusCreated, false)
			exclude := func(fields string) string {
				return strings.Replace(conf(s, store), `"POST /payments"`, `"POST /payments", exclude: [`+fields+`]`, 1)
			}
			g.edit(exclude("/sent_at"), reloaded)
			post(a, one, http.StatusCreated, true)
			post(a, two, http.StatusUnprocessableEntity, false)
			b, early := stored("compared-without-time", "1")
			_, late := stored("compared-without-time", "2")
			post(b, early, http.StatusCreated, false)
			post(b, late, http.StatusCreated, true)

			g.edit(exclude("/sent_at, /trace"), reloaded)
			post(a, one, http.StatusCreated, true)
			post(b, late, http.StatusCreated, true)
			g.kill()
			g.write(conf(s, store))
			g.start()
			post(a, one, http.StatusCreated, true)
			post(b, late, http.StatusCreated, true)
			if n := s.total(); n != 2 {
				t.Errorf("the service was called %d times for two keys", n)
			}
		})
	}
}

// Fingerprints have the scope in them since an upgrade. It changes no identity: the new
// program starts over the store of the old one, and the retry of a key from before gets
// its answer.
func TestKeysFromBeforeTheScopeCountedAreReplayed(t *testing.T) {
	t.Parallel()
	const key, body = "from-before-the-scope-counted", `{"key":"from-before-the-scope-counted"}`
	s, file := newService(t), filepath.Join(t.TempDir(), "keys.db")
	g := newGateway(t, conf(s, "sqlite:"+file))
	first, err := g.post(t.Context(), "/payments", key, body)
	if err != nil || first.status != http.StatusCreated {
		t.Fatalf("%+v, %v", first, err)
	}
	g.kill()
	restamp(t, file, key, func(scope string) (now, before []byte) {
		for _, part := range []string{"POST", "/payments", "", ""} { // method, path, its prefix, the pattern's host
			before = append(append(before, byte(len(part))), part...)
		}
		before = append(before, 0, 0, byte(len("application/json"))) // neither a query nor headers
		before = append(before, "application/jsonj"+body...)
		return append(append([]byte{byte(len(scope))}, scope...), before...), before
	})
	g.start()
	g.replays(s, key, body, first)
	if got, err := g.post(t.Context(), "/payments", key, `{"key":"another"}`); err != nil || got.status != http.StatusUnprocessableEntity {
		t.Errorf("another request under the key: %+v, %v", got, err)
	}
}

// restamp gives the record of a key the fingerprint that a gateway from before the scope
// counted would have stored. Frames returns what is hashed, now and before.
func restamp(t *testing.T, file, key string, frames func(scope string) (now, before []byte)) {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	all, err := store.List(t.Context(), retrysafe.Query{Limit: retrysafe.MaxList})
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(r retrysafe.Record) bool { return r.Key == key })
	if at < 0 {
		t.Fatalf("the key is not among %d records", len(all))
	}
	w := all[at].Update()
	now, before := frames(w.Scope)
	if want := (retrysafe.Fingerprint{Alg: 2, Sum: sha256.Sum256(now)}); w.Fingerprint != want {
		t.Fatalf("the gateway has stored %+v, want %+v", w.Fingerprint, want)
	}
	w.Fingerprint = retrysafe.Fingerprint{Alg: 1, Sum: sha256.Sum256(before)}
	w.Owner, w.Overwrite, w.Attempt, w.Term = retrysafe.Owner{1}, true, 2, w.Retain
	if _, err := store.Swap(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}

func exitCode(err error) int {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	return 0
}

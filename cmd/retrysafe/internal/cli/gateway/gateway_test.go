package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

// service is one that is guarded. It numbers its answers.
type service struct {
	*httptest.Server
	calls atomic.Int64
	hold  chan struct{} // if not nil, it answers when this is closed
	mu    sync.Mutex
	last  http.Header
}

func newService(t *testing.T) *service {
	t.Helper()
	s := new(service)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n := s.calls.Add(1)
		s.mu.Lock()
		s.last = r.Header.Clone()
		s.mu.Unlock()
		if s.hold != nil {
			<-s.hold
		}
		if r.URL.Path == "/lost" {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "answer %d", n)
	}))
	t.Cleanup(s.Close)
	return s
}

// Flags alone are enough, and it says what it does.
func TestGatewayByFlags(t *testing.T) {
	t.Parallel()
	s := newService(t)
	store := "sqlite:" + filepath.Join(t.TempDir(), "keys.db")
	p := clitest.Start(t, "gateway", "--upstream", s.URL, "--tenant", "bearer", "--store", store, "--listen", "127.0.0.1:0")
	at := p.Word("gateway on ")
	p.Until("tenant: ")
	p.Says("retrysafe: upstream "+s.URL, "retrysafe: store "+store, "a hash of the bearer token")
	for range 3 {
		if status, body := clitest.Post(t, at+"/payments", "a", "one-key-of-a-client", "{}"); status != http.StatusCreated || body != "answer 1" {
			t.Errorf("got %d %s", status, body)
		}
	}
	if _, body := clitest.Post(t, at+"/payments", "b", "one-key-of-a-client", "{}"); body != "answer 2" {
		t.Errorf("another tenant got %s", body)
	}
	if status, _ := clitest.Post(t, at+"/payments", "a", "one-key-of-a-client", "[]"); status != http.StatusUnprocessableEntity {
		t.Errorf("another request got %d", status)
	}
	p.Stop(0).Says("outcome=replay", "key="+retrysafe.HashKey("one-key-of-a-client"))
	if strings.Contains(p.Output.String(), "one-key-of-a-client") {
		t.Error("a key is in the log")
	}
	clitest.NewShell(t, store).Run("keys list").Exits(0).Says("one-key-of-a-client", "POST /payments")
}

// A store that was not there is said to be new, with the whole path of its file: in another
// working directory the same URL is another store, in which each known key runs again.
func TestGatewaySaysThatItsStoreIsNew(t *testing.T) {
	t.Parallel()
	const says = "the store is new and has no keys; if this service had a store before, stop now"
	s := newService(t)
	start := func(store string) *clitest.Process {
		t.Helper()
		p := clitest.Start(t, "gateway", "--upstream", s.URL, "--tenant", "bearer", "--store", store, "--listen", "127.0.0.1:0")
		p.Until("tenant: ")
		return p
	}
	first := start("sqlite:keys.db")
	path, err := filepath.EvalSymlinks(first.Cmd.Dir)
	clitest.Must(t, err)
	path = "sqlite:" + filepath.Join(path, "keys.db")
	first.Stop(0).Says("level=WARN", says, "store="+path, "retrysafe: store "+path)
	for _, store := range []string{path, "memory:"} { // it has an identity; it is always new
		if again := start(store).Stop(0); strings.Contains(again.Output.String(), says) {
			t.Errorf("%s is said to be new:\n%s", store, &again.Output)
		}
	}
	url, before := clitest.SQLite(t) // a service that uses the library has no identity
	clitest.Put(t, before.Store, clitest.Record("tenant-a", "a-key", retrysafe.StateCompleted))
	clitest.Must(t, before.Close())
	if p := start(url).Stop(0); strings.Contains(p.Output.String(), says) {
		t.Errorf("a store with keys is said to be new:\n%s", &p.Output)
	}
}

// What becomes of requests that are not as the gateway wants them, by default and under
// the flags for a first try. The README says it in one line.
func TestGatewayFirstContact(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 1<<20+1)
	// A body that is refused unread is not sent: the connection ends before it could be.
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	type sent struct {
		name, key, token, body string
	}
	all := []sent{
		{name: "without a key", token: "a"}, {name: "without a key and a caller"},
		{name: "anonymous", key: "a-key-of-nobody-1"}, {name: "upload", key: "a-key-of-an-upload", token: "a", body: large},
		{name: "upload without a key", token: "a", body: large}, {name: "keyed", key: "a-key-of-a-client", token: "a"}, {name: "retry", key: "a-key-of-a-client", token: "a"},
	}
	for flags, want := range map[string]struct {
		statuses []int
		calls    int64
		says     []string
	}{
		"":                     {[]int{400, 400, 401, 413, 400, 201, 201}, 1, []string{"without a key: refused with a 400"}},
		"--optional":           {[]int{201, 201, 401, 413, 201, 201, 201}, 4, []string{"without a key: forwarded unguarded"}},
		"--observe":            {[]int{201, 201, 201, 201, 201, 201, 201}, 7, []string{"nothing is enforced", "code=key-missing", "code=caller-unidentified", "code=body-too-large", "code=replay"}},
		"--observe --optional": {[]int{201, 201, 201, 201, 201, 201, 201}, 7, []string{"nothing is enforced", "code=caller-unidentified"}},
		"--optional=false":     {[]int{400, 400, 401, 413, 400, 201, 201}, 1, []string{"without a key: refused with a 400"}},
	} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			store := "sqlite:" + filepath.Join(t.TempDir(), "keys.db")
			p := clitest.Start(t, append([]string{"gateway", "--upstream", s.URL, "--tenant", "bearer", "--store", store, "--listen", "127.0.0.1:0"}, strings.Fields(flags)...)...)
			at := p.Word("gateway on ")
			for i, q := range all {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/payments", strings.NewReader(q.body))
				clitest.Must(t, err)
				if q.key != "" {
					r.Header.Set("Idempotency-Key", q.key)
				}
				if q.token != "" {
					r.Header.Set("Authorization", "Bearer "+q.token)
				}
				if q.body != "" {
					r.Header.Set("Expect", "100-continue")
				}
				got, err := client.Do(r)
				clitest.Must(t, err)
				clitest.Must(t, got.Body.Close())
				if got.StatusCode != want.statuses[i] {
					t.Errorf("%s got %d, want %d", q.name, got.StatusCode, want.statuses[i])
				}
			}
			if n := s.calls.Load(); n != want.calls {
				t.Errorf("the service was called %d times, want %d", n, want.calls)
			}
			p.Stop(0).Says(want.says...)
		})
	}
}

// A line about all requests would be wrong where routes have settings of their own.
func TestGatewaySaysWhatHoldsOutsideItsRoutes(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "gateway.yaml")
	clitest.Must(t, os.WriteFile(conf, fmt.Appendf(nil, "upstream: %s\ntenant: bearer\nstore: 'memory:'\nroutes: [{match: POST /hooks, off: true}]\nlisten: 127.0.0.1:0\n", newService(t).URL), 0o600))
	p := clitest.Start(t, "gateway", "--config", conf)
	p.Until("without a key: ")
	p.Stop(0).Says("POST and PATCH that match no route, without a key: refused with a 400")
}

// What the service gets as a derived key is what a resolver is asked by.
func TestGatewayAndResolverNameTheSameKey(t *testing.T) {
	t.Parallel()
	s, ask := newService(t), clitest.NewResolver(t)
	dir := t.TempDir()
	store := "sqlite:" + filepath.Join(dir, "keys.db")
	conf := filepath.Join(dir, "gateway.yaml")
	clitest.Must(t, os.WriteFile(conf, fmt.Appendf(nil, "upstream: %s\ntenant: bearer\nstore: %s\ndefaults: {derive_key: X-Key, reconcile: 1ms}\njanitor: {off: true}\nlisten: 127.0.0.1:0\n", s.URL, store), 0o600))
	p := clitest.Start(t, "gateway", "--config", conf)
	if status, body := clitest.Post(t, p.Word("gateway on ")+"/lost", "a", "a-key-of-a-client", "{}"); status < 400 {
		t.Errorf("got %d %s", status, body)
	}
	p.Stop(0).Says("attempt failed")
	ask.Reply("a-key-of-a-client", `{"verdict": "happened", "answer": {"status": 201, "body": "found"}}`)
	clitest.NewShell(t, "").Run("reconcile run --config", conf, "--resolver-url", ask.URL).Exits(0).Says("1 completed")
	s.mu.Lock()
	sent := s.last.Get("X-Key")
	s.mu.Unlock()
	if asked, _ := ask.Questions(); len(asked) != 1 || asked[0]["downstream_key"] != sent || sent == "" {
		t.Errorf("the service had %q, and the resolver was asked %v", sent, asked)
	}
}

// SIGHUP and a change of the file are noticed; what is wrong is not taken.
func TestGatewayReloads(t *testing.T) {
	t.Parallel()
	one, two := newService(t), newService(t)
	dir := t.TempDir()
	conf := filepath.Join(dir, "gateway.yaml")
	write := func(upstream string) {
		t.Helper()
		next := filepath.Join(dir, "next")
		clitest.Must(t, os.WriteFile(next, fmt.Appendf(nil, "upstream: %s\ntenant: bearer\nstore: 'memory:'\nlisten: 127.0.0.1:0\nadmin: { listen: 127.0.0.1:0, token: a-token-of-an-operator }\n", upstream), 0o600))
		clitest.Must(t, os.Rename(next, conf))
	}
	write(one.URL)
	p := clitest.Start(t, "gateway", "--config", conf)
	at := p.Word("gateway on ")
	admin := p.Word("operators on ")
	refused := func(want string) {
		t.Helper()
		if _, metrics := clitest.Get(t, admin+"/metrics", "a-token-of-an-operator"); !strings.Contains(metrics, "\nretrysafe_config_reload_refused "+want+"\n") {
			t.Errorf("the metrics have not retrysafe_config_reload_refused %s", want)
		}
	}
	refused("0")
	if _, body := clitest.Post(t, at+"/a", "a", "before-the-reload", "{}"); body != "answer 1" {
		t.Errorf("got %s", body)
	}
	p.Signal(syscall.SIGHUP)
	p.Until("configuration reloaded")
	write("nonsense")
	p.Until("configuration not reloaded, the old one serves on")
	refused("1")
	if status, _ := clitest.Get(t, at+"/b", ""); status != http.StatusCreated || one.calls.Load() != 2 {
		t.Errorf("got %d after %d calls", status, one.calls.Load())
	}
	write(two.URL)
	for two.calls.Load() == 0 {
		if status, _ := clitest.Get(t, at+"/b", ""); status != http.StatusCreated {
			t.Fatalf("got %d", status)
		}
	}
	refused("0")
	// What is in memory has outlived the reloads.
	if _, body := clitest.Post(t, at+"/a", "a", "before-the-reload", "{}"); body != "answer 1" {
		t.Errorf("got %s after a reload", body)
	}
	p.Stop(0)
	if n := strings.Count(p.Output.String(), "in memory is gone when the process ends"); n < 3 {
		t.Errorf("of the warning there are %d, want one for each configuration", n)
	}
}

// A warning is the same line in a check of the file, at the start and at a reload, and once in
// each, so that a pipeline that fails on warnings finds what the start would say.
func TestWarningsOfACheckAndOfAStartAreTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conf, store := filepath.Join(dir, "gateway.yaml"), filepath.Join(dir, "keys.db")
	clitest.Must(t, os.WriteFile(conf, fmt.Appendf(nil, "upstream: http://127.0.0.1:1\nlisten: 127.0.0.1:0\ntenant: bearer\nstore: sqlite:%s\nserver: {max_memory: 8MiB}\nroutes:\n"+
		"  - {match: POST /exports, async: true}\n  - {match: POST /short, retention: 5m}\n  - {match: POST /large, max_response: 4MiB}\n", store), 0o600))
	p := clitest.Start(t, "gateway", "--config", conf)
	p.Word("gateway on ")
	p.Until("routes[2]: max_request") // the last warning of the start
	clitest.Must(t, os.Chmod(store, 0o644))
	p.Signal(syscall.SIGHUP)
	p.Until("configuration reloaded")
	p.Stop(0)
	checked := clitest.NewShell(t, "").Run("config validate --strict", conf).Exits(1).Err
	for text, times := range map[string]int{
		"7:35: routes[0].async: requests are run later without the token": 2,
		"7:35: routes[0].async: requests are stored as they come":         2,
		"8:37: routes[1].retention: retention 5m0s is under an hour":      2,
		"9:5: routes[2]: max_request and max_response allow":              2,
		"store: other users of this machine can read":                     1, // it was not so at the start
	} {
		if n := strings.Count(checked, text); n != 1 {
			t.Errorf("the check says %q %d times: %s", text, n, checked)
		}
		_, words, _ := strings.Cut(text, ": ") // also without its place
		if n := strings.Count(p.Output.String(), text); n != times || strings.Count(p.Output.String(), words) != times {
			t.Errorf("start and reload say %q %d times, want %d: %s", text, n, times, p.Output.String())
		}
	}
}

// A reload that takes the operators' listener away says so.
func TestGatewayReloadsWithoutOperators(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "gateway.yaml")
	const rest = "upstream: http://127.0.0.1:9\ntenant: bearer\nstore: 'memory:'\nlisten: 127.0.0.1:0\njanitor: {off: true}\n"
	clitest.Must(t, os.WriteFile(conf, []byte(rest+"admin: {listen: '127.0.0.1:0', token: a-token-of-operators}\n"), 0o600))
	p := clitest.Start(t, "gateway", "--config", conf)
	p.Until("operators on")
	clitest.Must(t, os.WriteFile(conf, []byte(rest), 0o600))
	p.Until("the listener of operators is closed")
	p.Stop(0)
}

// SIGTERM lets accepted requests end; a second one does not wait.
func TestGatewayDrainsUnlessToldTwice(t *testing.T) {
	t.Parallel()
	for _, twice := range []bool{false, true} {
		t.Run(fmt.Sprint(twice), func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.hold = make(chan struct{})
			letGo := sync.OnceFunc(func() { close(s.hold) })
			t.Cleanup(letGo)
			store := "sqlite:" + filepath.Join(t.TempDir(), "keys.db")
			p := clitest.Start(t, "gateway", "--upstream", s.URL, "--tenant", "bearer", "--store", store, "--listen", "127.0.0.1:0")
			at := p.Word("gateway on ")
			answered := make(chan string, 1)
			go func() {
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/slow", strings.NewReader("{}"))
				r.Header.Set("Authorization", "Bearer a")
				r.Header.Set("Idempotency-Key", "a-slow-request-12")
				got, err := http.DefaultClient.Do(r)
				if err != nil {
					answered <- "cut"
					return
				}
				defer got.Body.Close()
				body, _ := io.ReadAll(got.Body)
				answered <- string(body)
			}()
			for s.calls.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			p.Signal(syscall.SIGTERM)
			p.Until("draining")
			if twice {
				p.Signal(syscall.SIGTERM)
				<-p.Ended
				if p.Cmd.ProcessState.Success() || <-answered != "cut" {
					t.Errorf("it ended with %v", p.Cmd.ProcessState)
				}
				return
			}
			letGo()
			p.Exits(0)
			if got := <-answered; got != "answer 1" {
				t.Errorf("the client got %q", got)
			}
			clitest.NewShell(t, store).Run("keys list").Exits(0).Says("completed")
		})
	}
}

// Records are encrypted; a gateway that does not know of it does not start over them.
func TestGatewaySeals(t *testing.T) {
	t.Parallel()
	s := newService(t)
	dir := t.TempDir()
	store, keys := "sqlite:"+filepath.Join(dir, "keys.db"), filepath.Join(dir, "keys.json")
	clitest.NewShell(t, "").Run("config genkeys", keys).Exits(0)
	args := []string{"gateway", "--upstream", s.URL, "--tenant", "bearer", "--store", store, "--listen", "127.0.0.1:0"}
	p := clitest.Start(t, append(args, "--keys-file", keys)...)
	at := p.Word("gateway on ")
	for range 2 {
		if _, body := clitest.Post(t, at+"/a", "secret-tenant", "a-secret-key-of-a", "{}"); body != "answer 1" {
			t.Errorf("got %s", body)
		}
	}
	p.Stop(0).Says("records are encrypted")
	for _, file := range []string{"keys.db", "keys.db-wal"} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err == nil && strings.Contains(string(text), "a-secret-key-of-a") {
			t.Errorf("%s has the key", file)
		}
	}
	clitest.NewShell(t, store).With("RETRYSAFE_KEYS_FILE", keys).Run("keys list").Exits(0).Says("a-secret-key-of-a")
	clitest.Start(t, args...).Exits(2).Says("are encrypted")
	clitest.NewShell(t, "").Run("config genkeys", filepath.Join(dir, "others.json")).Exits(0)
	clitest.Start(t, append(args, "--keys-file", filepath.Join(dir, "others.json"))...).Exits(2).Says("are not those of")
}

// Operators have their own listener, which asks for the token. It serves no
// debugging pages.
func TestW84_AdminShowsNoDebugging(t *testing.T) {
	t.Parallel()
	s := newService(t)
	p := clitest.StartIn(t, []string{"RETRYSAFE_ADMIN_TOKEN=a-token-of-operators"}, "gateway", "--upstream", s.URL, "--tenant", "bearer", "--store", "memory:", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	at, admin := p.Word("gateway on "), p.Word("operators on ")
	clitest.Post(t, at+"/a", "a", "a-key-for-metrics-1", "{}")
	if status, _ := clitest.Get(t, admin+"/metrics", ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", status)
	}
	if status, body := clitest.Get(t, admin+"/metrics", "a-token-of-operators"); status != http.StatusOK || !strings.Contains(body, "api_idempotency_reserve_created_total") {
		t.Errorf("metrics: %d %.300s", status, body)
	}
	for _, path := range []string{"/debug/pprof/", "/debug/vars", "/debug/pprof/cmdline"} {
		if status, body := clitest.Get(t, admin+path, "a-token-of-operators"); status != http.StatusNotFound {
			t.Errorf("%s: %d %.100s", path, status, body)
		}
		if _, body := clitest.Get(t, at+path, ""); !strings.HasPrefix(body, "answer ") {
			t.Errorf("%s is not the service's: %.100s", path, body)
		}
	}
	p.Stop(0).Says("in memory is gone when the process ends") // a warning
}

func TestGatewayCannotListen(t *testing.T) {
	t.Parallel()
	busy, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	clitest.Must(t, err)
	defer busy.Close()
	clitest.NewShell(t, "memory:").Run("gateway --upstream http://127.0.0.1:1 --tenant none --listen", busy.Addr().String()).Exits(5).Says("address already in use", "--listen")
	clitest.NewShell(t, "memory:").With("RETRYSAFE_ADMIN_TOKEN", "a-token-of-operators").
		Run("gateway --upstream http://127.0.0.1:1 --tenant none --listen 127.0.0.1:0 --admin", busy.Addr().String()).Exits(5).Says("address already in use", "--admin").InOneLine()
}

// A gateway does not start over a store whose keys were stored under other settings,
// unless it adopts it.
func TestGatewayRefusesAStoreOfOtherSettings(t *testing.T) {
	t.Parallel()
	s := newService(t)
	dir := t.TempDir()
	store := "sqlite:" + filepath.Join(dir, "keys.db")
	args := func(tenant string, more ...string) []string {
		return append([]string{"gateway", "--upstream", s.URL, "--tenant", tenant, "--store", store, "--listen", "127.0.0.1:0"}, more...)
	}
	p := clitest.Start(t, args("bearer")...)
	clitest.Post(t, p.Word("gateway on ")+"/a", "a", "a-key-of-a-client", "{}")
	p.Stop(0)
	clitest.NewShell(t, "").Run(strings.Join(args("none"), " ")).Exits(2).InOneLine().
		Says("were stored under other settings: tenant is bearer in the store, and none in the configuration.", "Undo the change; or start with --adopt-identity")
	clitest.Start(t, args("bearer", "--observe")...).Word("gateway on ")

	conf := filepath.Join(dir, "gateway.yaml")
	write := func(tenant string) {
		clitest.Must(t, os.WriteFile(conf, fmt.Appendf(nil, "upstream: %s\ntenant: %s\nstore: %s\n", s.URL, tenant, store), 0o600))
	}
	write("bearer")
	clitest.NewShell(t, "").Run("config validate --strict", conf).Exits(0).Hides("in the store")
	write("header:X-Org")
	clitest.NewShell(t, "").Run("config validate", conf).Exits(0).Says("warning: tenant is bearer in the store, and header:X-Org in the configuration", "good")

	p = clitest.Start(t, args("none", "--adopt-identity")...)
	p.Word("gateway on ")
	p.Stop(0).Says("level=WARN", "tenant is bearer in the store, and none in the configuration", "by --adopt-identity")
	p = clitest.Start(t, args("none")...)
	p.Word("gateway on ")
	p.Stop(0)
	clitest.NewShell(t, store).Run("keys list").Exits(0).Says("a-key-of-a-client").Hides("deployment")
}

// In this process, so that the race detector looks on: every kind of reload, and an
// orderly end.
func TestGatewayReloadsInThisProcess(t *testing.T) {
	t.Parallel()
	one, two := newService(t), newService(t)
	dir := t.TempDir()
	conf, keys, hidden := filepath.Join(dir, "gateway.yaml"), filepath.Join(dir, "keys.json"), filepath.Join(dir, "url")
	clitest.NewShell(t, "").Run("config genkeys", keys).Exits(0)
	clitest.Must(t, os.WriteFile(hidden, []byte("sqlite:"+filepath.Join(dir, "keys.db")+"\n"), 0o600))
	write := func(upstream string, more ...string) {
		t.Helper()
		clitest.Must(t, os.WriteFile(conf, fmt.Appendf(nil, "upstream: %s\ntenant: {from: header, name: X-Tenant}\nstore_file: %s\nlisten: 127.0.0.1:0\nencryption: {keys_file: %s}\n%s", upstream, hidden, keys, strings.Join(more, "\n")), 0o600))
	}
	write(one.URL)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var said clitest.Buffer
	hangup, ended := make(chan os.Signal, 1), make(chan int, 1)
	go func() {
		env := clitest.NewEnv()
		env.Out, env.Err, env.Hangups = &said, &said, func(context.Context) <-chan os.Signal { return hangup }
		ended <- cli.Run(ctx, []string{"gateway", "--config", conf, "--log-format", "json", "--log-all"}, env)
	}()
	until := func(text string, n int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); strings.Count(said.String(), text) < n; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it did not say %q:\n%s", text, &said)
			}
		}
	}
	until("tenant: ", 1)
	_, rest, _ := strings.Cut(said.String(), "gateway on ")
	at := strings.Fields(rest)[0]
	pay := func(want string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/a", strings.NewReader("{}"))
		clitest.Must(t, err)
		r.Header.Set("X-Tenant", "a")
		r.Header.Set("Idempotency-Key", "one-key-for-all-of-it")
		if _, body := clitest.Send(t, r); body != want {
			t.Errorf("got %s, want %s", body, want)
		}
	}
	pay("answer 1")
	hangup <- syscall.SIGHUP
	until("configuration reloaded", 1)
	pay("answer 1")
	clitest.NewShell(t, "").Run("config genkeys --add", keys).Exits(0) // a file that the configuration names
	until("configuration reloaded", 2)
	pay("answer 1")
	write(two.URL)
	until("configuration reloaded", 3)
	pay("answer 1")
	if status, _ := clitest.Get(t, at+"/b", ""); status != http.StatusCreated || two.calls.Load() != 1 {
		t.Errorf("got %d after %d calls", status, two.calls.Load())
	}
	write(two.URL, "routes: [{match: POST /a, off: true}]")
	until("configuration reloaded", 4)
	if lost := "run again; undo it"; strings.Count(said.String(), lost) != 1 || !strings.Contains(said.String(), `\"POST /a\" is off now and was guarded before`) {
		t.Errorf("a route that is not guarded any more was not reported once:\n%s", &said)
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d\n%s", code, &said)
	}
	until(`"outcome":"passed"`, 1)
	if !strings.Contains(said.String(), "the header X-Tenant, from 127.0.0.0/8, ::1/128 only") {
		t.Errorf("it said\n%s", &said)
	}
}

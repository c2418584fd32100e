package verify_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/conform"
	"github.com/retrysafe/retrysafe/internal/test/dynamofake"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

var (
	both    = flag.Bool("verify.both", false, "verify each store in both profiles, and dynalite too; otherwise the profiles take turns")
	reports = flag.String("verify.reports", "", "a directory that gets the report of each gateway in the profile ietf, for make matrix")
)

// A place is where a gateway keeps its keys.
type place struct {
	name string
	// open returns an empty store. It ends with the test.
	open func(t *testing.T) *keyStore
	// forgets says that a restart loses everything.
	forgets bool
	// slow says that the store takes part only if everything is asked for.
	slow bool
}

// A keyStore is a store that can be made unavailable, except for one in memory.
type keyStore struct {
	url      string
	down, up func(context.Context) error
}

var places = []place{
	{name: "memory", forgets: true, open: func(*testing.T) *keyStore { return &keyStore{url: "memory:"} }},
	{name: "sqlite", open: func(t *testing.T) *keyStore {
		file := filepath.Join(t.TempDir(), "keys.db")
		db, err := sql.Open("sqlite", file) // it connects when it is used
		clitest.Must(t, err)
		t.Cleanup(func() { clitest.Must(t, db.Close()) })
		db.SetMaxOpenConns(1)
		lock := func(ctx context.Context) error { _, err := db.ExecContext(ctx, "BEGIN EXCLUSIVE"); return err }
		unlock := func(ctx context.Context) error { _, err := db.ExecContext(ctx, "ROLLBACK"); return err }
		return &keyStore{"sqlite:" + file, lock, unlock}
	}},
	{name: "postgres", open: func(t *testing.T) *keyStore {
		direct := testservers.Shared(t)
		at, err := url.Parse(direct)
		clitest.Must(t, err)
		return behind(t, at.Host, func(address string) string {
			through, err := testservers.Via(direct, address)
			clitest.Must(t, err)
			return through
		})
	}},
	{name: "mariadb", open: func(t *testing.T) *keyStore {
		_, rest, _ := strings.Cut(testservers.SharedMariaDB(t), "(") // root@tcp(HOST:PORT)/DATABASE
		at, database, _ := strings.Cut(rest, ")/")
		return behind(t, at, func(address string) string { return "mysql://root@" + address + "/" + database })
	}},
	{name: "redis", open: func(t *testing.T) *keyStore {
		return behind(t, testservers.NewRedis(t).Addr(), func(address string) string { return "redis://" + address })
	}},
	{name: "dynamodb", open: func(t *testing.T) *keyStore {
		fake := dynamofake.New()
		t.Cleanup(fake.Close)
		return behind(t, strings.TrimPrefix(fake.URL, "http://"), dynamoURL)
	}},
	{name: "dynalite", slow: true, open: func(t *testing.T) *keyStore {
		return behind(t, testservers.NewDynalite(t).Addr(), dynamoURL)
	}},
}

func dynamoURL(address string) string {
	return "dynamodb://eu-central-1/keys?endpoint=http://" + address
}

// behind returns a store that is reached through a network that can fail.
func behind(t *testing.T, at string, url func(address string) string) *keyStore {
	t.Helper()
	network, err := netfault.New(at)
	clitest.Must(t, err)
	t.Cleanup(func() { clitest.Must(t, network.Close()) })
	down := func(context.Context) error {
		network.Refuse()
		network.Strike(netfault.Reset)
		return nil
	}
	return &keyStore{url(network.Addr()), down, func(context.Context) error { return network.Heal() }}
}

var profiles = []*conform.Profile{conform.IETF, conform.Stripe}

// The gateway makes a service that knows no keys pass every check on every store: in both
// profiles, while its store is gone, and after it was killed or stopped.
func TestGatewayHoldsInBothProfiles(t *testing.T) {
	t.Parallel()
	for i, store := range places {
		for j, profile := range profiles {
			if !*both && (store.slow || (i+j)%2 != 0) {
				continue
			}
			t.Run(store.name+" "+profile.Name, func(t *testing.T) {
				t.Parallel()
				s := newService(t)
				s.hook = porthold.Lent(t)
				keys := store.open(t)
				address := porthold.Lent(t)
				// Without forward_key the service could not book its sales under their keys.
				config := filepath.Join(t.TempDir(), "gateway.yaml")
				clitest.Must(t, os.WriteFile(config, []byte(fmt.Sprintf(`
listen: %s
upstream: %s
store: %q
store_timeout: 5s # the machine may be busy
profile: %s
tenant: { from: bearer }
routes:
  - { match: "POST /{rest...}", forward_key: Idempotency-Key }
`, address, s.URL, keys.url, profile.Name)), 0o600))
				start := func() *clitest.Process {
					p := clitest.Start(t, "gateway", "--config", config)
					p.Until("gateway on ")
					return p
				}
				p := start()
				test := func(what string) http.Header { return http.Header{"X-Test": {what}} }
				o := &conform.Options{
					URL: "http://" + address, Profile: profile,
					Request:     conform.Request{Path: "/sales", Header: http.Header{"Authorization": {"Bearer a"}}, Body: []byte(`{"amount": 1200, "currency": "EUR"}`)},
					OtherHeader: http.Header{"Authorization": {"Bearer b"}}, OtherPath: "/transfers",
					Effects: conform.Effects{URL: s.URL + "/?key={key}"},
					Slow:    test("slow"), Fail: test("fail"), Limit: test("limit"), Crash: test("crash"), Webhooks: s.hook,
					Racers: 4, Rate: 1e6, Interval: 50 * time.Millisecond, Patience: time.Minute, Timeout: time.Minute,
				}
				var untested []string
				if store.forgets {
					untested = []string{"restart/replay", "store/fail-closed"}
				} else {
					o.StoreDown, o.StoreUp = keys.down, keys.up
					o.Restart = func(context.Context) error {
						if profile == conform.IETF {
							p.Signal(syscall.SIGKILL)
							<-p.Ended
						} else {
							p.Stop(0)
						}
						p = start()
						return nil
					}
				}
				r := everyCheckHolds(t, o, untested...)
				if *reports != "" && profile == conform.IETF {
					var data strings.Builder
					clitest.Must(t, r.Write(&data, "json"))
					clitest.Must(t, os.WriteFile(filepath.Join(*reports, "gateway-"+store.name+".json"), []byte(data.String()), 0o600))
				}
			})
		}
	}
}

// The demo passes as docs/verify.md shows it, in both profiles, on both stores that it takes.
func TestDemoHolds(t *testing.T) {
	t.Parallel()
	for i, store := range places[1:3] {
		for j, profile := range profiles {
			if !*both && (i+j)%2 != 0 {
				continue
			}
			t.Run(store.name+" "+profile.Name, func(t *testing.T) {
				t.Parallel()
				address, provider := porthold.Lent(t), porthold.Lent(t)
				keys := store.open(t).url
				start := func() *clitest.Process {
					p := clitest.Start(t, "demo", "--listen", address, "--provider", provider, "--store", keys, "--profile", profile.Name)
					p.Until(`"none"`)
					return p
				}
				p, at := start(), "http://"+address
				for _, endpoint := range []string{"/payments", "/charges"} {
					everyCheckHolds(t, &conform.Options{
						URL: at, Profile: profile,
						Request: conform.Request{
							Path: endpoint, Header: http.Header{"Authorization": {"Bearer demo-a"}},
							Body: []byte(`{"amount": 1200, "currency": "EUR", "account_id": 1}`),
						},
						OtherHeader: http.Header{"Authorization": {"Bearer demo-b"}},
						Effects:     conform.Effects{URL: at + "/ledger?key={key}"},
						Restart:     func(context.Context) error { p.Stop(0); p = start(); return nil },
						Racers:      4, Rate: 1e6, Interval: 50 * time.Millisecond, Patience: time.Minute, Timeout: time.Minute,
					}, "replay/cookies", "webhook/once", "store/fail-closed", "slow/effects", "disconnect/retry", "answers/429", "answers/5xx", "crash/effects", "crash/settles",
						"mismatch/path", "inflight/status", "inflight/retry-after", "inflight/mismatch")
				}
			})
		}
	}
}

// everyCheckHolds fails the test unless every check holds or observes, except those that
// cannot be tested with these options.
func everyCheckHolds(t *testing.T, o *conform.Options, untested ...string) *conform.Report {
	t.Helper()
	r, err := conform.Run(t.Context(), o)
	clitest.Must(t, err)
	var said strings.Builder
	clitest.Must(t, r.Write(&said, "text"))
	clitest.Must(t, r.Err())
	missing := map[string]bool{"key/quoted": o.Profile.Opaque}
	for _, id := range untested {
		missing[id] = true
	}
	for _, result := range r.Results {
		switch {
		case result.Verdict == "holds" || result.Verdict == "observation":
		case result.Verdict == "not tested" && missing[result.Check]:
		default:
			t.Errorf("%s: %s: %s\n%s", result.Check, result.Verdict, result.Why, said.String())
		}
	}
	return r
}

// The command line of docs/verify.md says of the demo what the checks say.
func TestDocsDemoHolds(t *testing.T) {
	t.Parallel()
	p := clitest.Start(t, "demo", "--listen", "127.0.0.1:0")
	p.Until(`"none"`)
	at := p.Word("node 1 on ")
	clitest.NewShell(t, "").RunArgs("verify", at+"/payments", "--data", `{"amount": 1200, "currency": "EUR", "account_id": 1}`,
		"--header", "Authorization: Bearer demo-a", "--other-header", "Authorization: Bearer demo-b",
		"--effects-url", at+"/ledger?key={key}", "--rate", "1000").
		Exits(0).Says("replay/bytes", " holds", "scope/credentials").Hides("violated", "not optimal", "set-up failed")
}

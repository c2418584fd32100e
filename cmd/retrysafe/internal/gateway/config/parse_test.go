package config_test

import (
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// design is the example that the format was agreed on by.
const design = `listen: 127.0.0.1:8080
upstream: http://127.0.0.1:9000
store: sqlite:retrysafe.db
profile: ietf                                  # stripe
tenant: { from: header, name: X-Tenant-Id, trusted_proxies: [127.0.0.0/8] }   # bearer (a hash of the token; a refreshed token is a new scope) · jwt (a claim, with jwks, issuer, audience) · none (one tenant, said aloud); no default
defaults: { lease: 30s, retention: 24h, in_flight: conflict, on_5xx: by_proof, effects: unprotected, lapse: quarantine, max_request: 1MiB, max_response: 1MiB }
routes:                                        # patterns are net/http ServeMux patterns
  - { match: "POST /payments", required: true, effects: keyed, forward_key: Idempotency-Key, on_5xx: by_proof }
  - { match: "POST /reports", in_flight: wait, wait: 2s }
  - { match: "POST /exports", in_flight: accepted, async: true }
  - { match: "POST /hooks/{rest...}", off: true }
  - { match: "POST /legacy/{rest...}", observe: true, scope: operation, on_expired: gone, retention: 72h, bind: principal }
limits: { new_keys_per_second: 100, active_keys: 100000 }   # per tenant
encryption: { keys_file: keys.yaml }
admin: { listen: 127.0.0.1:8081, token: "${RETRYSAFE_ADMIN_TOKEN}" }
`

func TestFirstSent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]config.FirstSent{
		"false": config.FirstSentIgnored, "true": config.FirstSentChecked, "required": config.FirstSentRequired,
	} {
		c := parse(t, least+"routes: [{ match: POST /a, first_sent: "+text+" }]\n")
		if got := c.Routes[0].FirstSent; got != want || c.Defaults.FirstSent != config.FirstSentIgnored {
			t.Errorf("first_sent: %s is %d", text, got)
		}
		printed, err := c.Print()
		if err != nil || (want != config.FirstSentIgnored) != strings.Contains(string(printed), "first_sent: "+text+"\n") {
			t.Errorf("first_sent: %s is printed as\n%s", text, printed)
		}
	}
	contains(t, refused(t, least+"defaults: { first_sent: require }\n"), `defaults.first_sent: "require" is none of false, true, required; did you mean required?`)
	contains(t, refused(t, least+"defaults: { first_sent: \"true\" }\n"), "is a text; write it without quotes")
}

func TestTheAgreedExample(t *testing.T) {
	t.Parallel()
	got := parseIn(t, vars{"RETRYSAFE_ADMIN_TOKEN": "0123456789abcdef"}, design)

	want := config.Default()
	want.Upstream = "http://127.0.0.1:9000"
	want.Tenant = config.Tenant{
		From: "header", Name: "X-Tenant-Id", Principal: "X-Principal-Id",
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}
	want.Defaults.Policy.OnFailure = retrysafe.FailureByProof
	want.Defaults.Policy.Lapse = retrysafe.LapseQuarantine
	route := func(match string, change func(*config.Settings)) {
		r := config.Route{Match: match, Settings: want.Defaults}
		change(&r.Settings)
		want.Routes = append(want.Routes, r)
	}
	route("POST /payments", func(s *config.Settings) {
		s.Policy.Effects, s.ForwardKey = retrysafe.EffectsKeyed, "Idempotency-Key"
	})
	route("POST /reports", func(s *config.Settings) {
		s.Policy.InFlight, s.Policy.Wait = retrysafe.InFlightWait, 2*time.Second
	})
	route("POST /exports", func(s *config.Settings) {
		s.Policy.InFlight, s.Async = retrysafe.InFlightAccept, true
	})
	route("POST /hooks/{rest...}", func(s *config.Settings) { s.Off = true })
	route("POST /legacy/{rest...}", func(s *config.Settings) {
		s.Observe, s.PerOperation, s.BindPrincipal = true, true, true
		s.Policy.OnExpired, s.Policy.Retention = retrysafe.ExpiredGone, 72*time.Hour
	})
	want.Limits = config.Limits{NewKeysPerSecond: 100, ActiveKeys: 100000}
	want.Encryption.KeysFile = "keys.yaml"
	want.Admin = config.Admin{Listen: "127.0.0.1:8081", Token: "0123456789abcdef"}
	want.Janitor.Tombstone = 30 * 24 * time.Hour // for the route whose keys are gone when they expire

	if !got.Equal(&want) {
		t.Errorf("got\n%+v\nwant\n%+v", *got, want)
	}
	if lines := []int{got.Routes[0].Line, got.Routes[4].Line}; !reflect.DeepEqual(lines, []int{8, 12}) {
		t.Errorf("the first and the last route are on lines %v", lines)
	}
}

func TestWhatIsNotSaidIsTheDefault(t *testing.T) {
	t.Parallel()
	want := config.Default()
	want.Upstream, want.Tenant.From = "http://127.0.0.1:9000", "bearer"
	want.Defaults.Policy.Lapse = retrysafe.LapseQuarantine // it goes by the effects
	for name, text := range map[string]string{
		"nothing else": least,
		"sections with nothing in them": least + `
routes:
limits: # new_keys_per_second: 100
admin: {}
tls: ~
`,
		"byte order mark": "\ufeff" + least,
	} {
		if got := parse(t, text); !got.Equal(&want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", name, *got, want)
		}
	}
	if err := want.Check(); err != nil {
		t.Errorf("the defaults, an upstream and a tenant are not enough: %v", err)
	}
}

func TestRoutesInherit(t *testing.T) {
	t.Parallel()
	c := parse(t, least+`
defaults: { effects: keyed, derive_key: X-Idem, retention: 2d, include: [/a], observe: true, required: false, timeout: 20s }
routes:
  - match: POST /as-the-defaults
  - { match: POST /forwards, forward_key: Idempotency-Key, observe: false }
  - { match: POST /hooks, off: true }
  - { match: POST /all, include: [], required: true, effects: unprotected, derive_key: "" }
`)
	if got, want := c.Routes[0].Settings, c.Defaults; !reflect.DeepEqual(got, want) {
		t.Errorf("a route that says nothing is\n%+v\nnot\n%+v", got, want)
	}
	if r := c.Routes[1]; r.ForwardKey != "Idempotency-Key" || r.DeriveKey != "" || r.Observe {
		t.Errorf("forward_key does not take the place of derive_key: %+v", r)
	}
	if r := c.Routes[2]; !r.Off || r.Observe {
		t.Errorf("off does not take the place of observe: %+v", r)
	}
	r := c.Routes[3]
	if r.Include != nil || !r.Required || r.Policy.Effects != retrysafe.EffectsUnprotected || r.Policy.Retention != 48*time.Hour || r.Timeout != 20*time.Second {
		t.Errorf("a route's own words do not count: %+v", r)
	}
}

// A route that lets requests pass does not inherit what is only for those that guard all.
func TestAmbiguousPathsAreInheritedByRoutesThatGuard(t *testing.T) {
	t.Parallel()
	c := parse(t, least+`
defaults: { ambiguous_paths: guard }
routes:
  - { match: POST /a }
  - { match: POST /b, off: true }
  - { match: POST /c, required: false }
  - { match: POST /d, observe: true }
  - { match: POST /e, ambiguous_paths: refuse }
`)
	for i, want := range []string{config.AmbiguousGuard, config.AmbiguousRefuse, config.AmbiguousRefuse, config.AmbiguousRefuse, config.AmbiguousRefuse} {
		if got := c.Routes[i].AmbiguousPaths; got != want {
			t.Errorf("%s: it is %q, want %q", c.Routes[i].Match, got, want)
		}
	}
	if got := parse(t, least).Defaults.AmbiguousPaths; got != config.AmbiguousRefuse {
		t.Errorf("by default it is %q", got)
	}
}

func TestDefaultsThatDependOnOthers(t *testing.T) {
	t.Parallel()
	c := parse(t, least+`
defaults: { lease: 15m }
routes:
  - { match: POST /long, lease: 20m }
  - { match: POST /short, lease: 5s, max_run: 20s }
`)
	for i, want := range []struct{ maxRun, timeout time.Duration }{{20 * time.Minute, 30 * time.Second}, {20 * time.Second, 20 * time.Second}} {
		if r := c.Routes[i]; r.Policy.MaxRun != want.maxRun || r.Timeout != want.timeout {
			t.Errorf("%s: max_run %v and timeout %v, want %v", r.Match, r.Policy.MaxRun, r.Timeout, want)
		}
	}
	if got := c.Defaults.Policy.MaxRun; got != 15*time.Minute {
		t.Errorf("an attempt of the defaults is ended after %v, within its lease", got)
	}

	jwt := parse(t, `{upstream: "http://h", tenant: {from: jwt, claim: org, jwks: keys.json, issuer: me, audience: us}, defaults: {bind: principal}}`)
	if got, want := jwt.Tenant.Algorithms, []string{"RS256", "ES256", "EdDSA"}; !reflect.DeepEqual(got, want) || jwt.Tenant.Principal != "sub" {
		t.Errorf("tokens are checked by %v for %q", got, jwt.Tenant.Principal)
	}
}

func TestStripeDecidesAboutFailuresItself(t *testing.T) {
	t.Parallel()
	c := parse(t, least+"profile: stripe\nroutes: [{match: POST /a}, {match: POST /b, on_5xx: retry}]")
	if c.Routes[0].Policy.OnFailure != retrysafe.FailureDefault || c.Routes[1].Policy.OnFailure != retrysafe.FailureRetry {
		t.Errorf("on_5xx is %v and %v", c.Routes[0].Policy.OnFailure, c.Routes[1].Policy.OnFailure)
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour,
		"1500ms": 1500 * time.Millisecond, "36500d": 36500 * 24 * time.Hour,
	} {
		if got := parse(t, least+"defaults: {retention: "+text+"}").Defaults.Policy.Retention; got != want {
			t.Errorf("retention: %s is %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]int64{
		"1": 1, "65536": 65536, "64KiB": 65536, "64KB": 64000, "64kB": 64000, "1MiB": 1 << 20, "2MB": 2e6,
		"3GiB": 3 << 30, "1GB": 1e9, "512B": 512, "1 MiB": 1 << 20, `"65536"`: 65536,
	} {
		if got := parse(t, least+"defaults: {max_request: "+text+"}").Defaults.MaxRequest; got != want {
			t.Errorf("max_request: %s is %d, want %d", text, got, want)
		}
	}
	if got := parse(t, least+"cache: {bytes: 0}").Cache.Bytes; got >= 0 {
		t.Errorf("a cache of 0 bytes is %d, want none", got)
	}
}

func TestAnchorsAndMerges(t *testing.T) {
	t.Parallel()
	c := parse(t, least+`
routes:
  - &slow { match: POST /a, timeout: 50s, retention: 2h, include: &fields [/x] }
  - { <<: *slow, match: POST /b, retention: 3h }
  - { <<: [{ match: POST /c, timeout: 5s }, *slow], exclude: *fields }
`)
	for i, want := range []struct {
		match              string
		timeout, retention time.Duration
	}{
		{"POST /a", 50 * time.Second, 2 * time.Hour}, {"POST /b", 50 * time.Second, 3 * time.Hour}, {"POST /c", 5 * time.Second, 2 * time.Hour},
	} {
		if r := c.Routes[i]; r.Match != want.match || r.Timeout != want.timeout || r.Policy.Retention != want.retention {
			t.Errorf("routes[%d] is %s with %v and %v, want %v", i, r.Match, r.Timeout, r.Policy.Retention, want)
		}
	}
	if got := c.Routes[2].Exclude; !reflect.DeepEqual(got, []string{"/x"}) {
		t.Errorf("an alias in a list's place is %v", got)
	}
}

// Aliases of aliases can ask for more than there is time for, and those that
// contain themselves for ever.
func TestW79_AliasesAreBounded(t *testing.T) {
	t.Parallel()
	var merges strings.Builder
	merges.WriteString("routes:\n- &r0 {match: POST /}\n")
	for i := 1; i < 30; i++ {
		n, before := string(rune('a'+i%26))+string(rune('a'+i/26)), string(rune('a'+(i-1)%26))+string(rune('a'+(i-1)/26))
		if i == 1 {
			before = "r0"
		}
		merges.WriteString("- &" + n + " {<<: [*" + before + ", *" + before + "]}\n")
	}
	long := "routes:\n- {match: POST /a, include: &l [" + strings.Repeat("/a,", 2000) + "]}\n" + strings.Repeat("- {match: POST /b, include: *l}\n", 2000)
	for name, text := range map[string]string{
		"merges of merges": merges.String(),
		"long lists":       long,
		"itself":           "defaults: &d {<<: *d}",
		"itself in a list": "routes: &r [*r]",
		"itself as value":  "defaults: &d {lease: *d}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, least+text)
		})
	}
}

func TestFlagsOverrideTheFile(t *testing.T) {
	t.Parallel()
	c := parse(t, `
store_file: there-is-none
tenant: { from: jwt, claim: org, jwks: keys.json, issuer: me, audience: us }
defaults: { on_5xx: by_proof }
routes: [{ match: POST /a }, { match: POST /b, on_5xx: store }]
`,
		config.Flag{Name: "--upstream", Field: "upstream", Value: "http://127.0.0.1:9000"},
		config.Flag{Name: "--store", Field: "store", Value: "sqlite:$x.db"}, // a shell has been over it already
		config.Flag{Name: "--on-5xx", Field: "defaults.on_5xx", Value: "retry"},
		config.Flag{Name: "--tenant", Field: "tenant", Value: "jwt:org.id"},
	)
	if c.Upstream != "http://127.0.0.1:9000" || c.Store != "sqlite:$x.db" || c.StoreFile != "" {
		t.Errorf("upstream %s, store %s", c.Upstream, c.Store)
	}
	if c.Routes[0].Policy.OnFailure != retrysafe.FailureRetry || c.Routes[1].Policy.OnFailure != retrysafe.FailureStore {
		t.Errorf("the flag is for what no route says itself; got %v and %v", c.Routes[0].Policy.OnFailure, c.Routes[1].Policy.OnFailure)
	}
	if tn := c.Tenant; tn.Claim != "org.id" || tn.Issuer != "me" {
		t.Errorf("the flag names another claim of the same token; got %+v", tn)
	}
	got := parse(t, "upstream: http://h\ntenant: { from: jwt, claim: org }", config.Flag{Name: "--tenant", Field: "tenant", Value: "header:X-Org"}).Tenant
	if got.From != "header" || got.Name != "X-Org" || got.Claim != "" || len(got.TrustedProxies) != 2 {
		t.Errorf("the flag is about something else, so the file's words are void; got %+v", got)
	}
}

func TestFlagsAlone(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("", nil, nil,
		config.Flag{Name: "--upstream", Field: "upstream", Value: "http://h:9000"}, config.Flag{Name: "--tenant", Field: "tenant", Value: "none"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Upstream != "http://h:9000" || c.Tenant.From != "none" || c.Store != "sqlite:retrysafe.db" {
		t.Errorf("got %+v", c)
	}
	_, err = config.Parse("", nil, nil,
		config.Flag{Name: "--upstream", Field: "upstream", Value: "http://h:9000"}, config.Flag{Name: "--tenant", Field: "tenant", Value: "none"}, config.Flag{Name: "--admin", Field: "admin.listen", Value: "127.0.0.1:9001"})
	if want := "admin.token: it is missing; a request to --admin must show a token of at least 16 characters: set $RETRYSAFE_ADMIN_TOKEN to one"; err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	_, err = config.Parse("", nil, nil, config.Flag{Name: "--on-5xx", Field: "defaults.on_5xx", Value: "retyr"}, config.Flag{Name: "--x", Field: "defaults.x", Value: "1"})
	want := `upstream: it is missing; it is the service that is guarded, such as http://127.0.0.1:9000
tenant: it is missing, and has no default: the keys of tenants that are not told apart collide, and one gets the other's answers. Choose --tenant header:X-Tenant-Id, which a trusted proxy sets; --tenant bearer, a hash of the caller's token; a claim of a verified token, in a file (--config); or --tenant none, where all callers are one tenant
--on-5xx: defaults.on_5xx: "retyr" is none of by_proof, retry, store; did you mean retry?
--x: defaults.x: there is no such field`
	if err == nil || sortedLines(err.Error()) != sortedLines(want) {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	path := write(t, "gw.yaml", least)
	if c, err := config.Load(path, nil); err != nil || c.Tenant.From != "bearer" {
		t.Errorf("Load = %+v, %v", c, err)
	}
	if _, err := config.Load(filepath.Join(t.TempDir(), "none.yaml"), nil); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := config.Load(t.TempDir(), nil); err == nil {
		t.Error("a folder is read")
	}
	if _, err := config.Load(write(t, "big.yaml", least+strings.Repeat("#", 1<<20)), nil); err == nil || !strings.Contains(err.Error(), "larger than 1MiB") {
		t.Errorf("a huge file: %v", err)
	}
}

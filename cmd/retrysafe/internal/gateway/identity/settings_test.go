package identity_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/identity"
	"github.com/retrysafe/retrysafe/store/sealed"
)

const least = "upstream: http://127.0.0.1:9000\n"

// of returns the settings of a file.
func of(t *testing.T, text string, keys *sealed.Keyring) identity.Settings {
	t.Helper()
	if !strings.Contains(text, "tenant:") {
		text += "tenant: bearer\n"
	}
	c, err := config.Parse("gw.yaml", []byte(least+text), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return identity.Of(c, keys)
}

func keyring(t *testing.T, text []byte) *sealed.Keyring {
	t.Helper()
	keys, err := sealed.ParseKeyring(text)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// What decides which record a request meets is a difference, and is named.
func TestDifferences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after string
		want          []string
	}{
		"tenant":     {"tenant: bearer\n", "tenant: header:x-tenant\n", []string{"tenant is bearer in the store, and header:X-Tenant in the configuration"}},
		"header":     {"tenant: header:X-A\n", "tenant: header:X-B\n", []string{"tenant is header:X-A in the store, and header:X-B in the configuration"}},
		"claim":      {jwt("org", "me"), jwt("org.id", "me"), []string{"tenant is jwt:org of me in the store, and jwt:org.id of me in the configuration"}},
		"issuer":     {jwt("org", "me"), jwt("org", "you"), []string{"tenant is jwt:org of me in the store, and jwt:org of you in the configuration"}},
		"profile":    {"", "profile: stripe\n", []string{"profile is ietf in the store, and stripe in the configuration"}},
		"key header": {"", "defaults: { key_header: X-Request-Id }\n", []string{"defaults.key_header is Idempotency-Key in the store, and X-Request-Id in the configuration"}},
		"scope":      {"", "defaults: { scope: operation }\n", []string{"defaults.scope is tenant in the store, and operation in the configuration"}},
		"bind": {"tenant: header:X-A\n", "tenant: { from: header, name: X-A, principal: X-B }\ndefaults: { bind: principal }\n", []string{
			"defaults.bind is none in the store, and principal in the configuration", "tenant.principal is not set in the store, and X-B in the configuration",
		}},
		"principal": {"tenant: { from: header, name: X-A, principal: X-B }\ndefaults: { bind: principal }\n", "tenant: { from: header, name: X-A, principal: X-C }\ndefaults: { bind: principal }\n", []string{
			"tenant.principal is X-B in the store, and X-C in the configuration",
		}},
		"principal of a route": {"tenant: { from: header, name: X-A, principal: X-B }\nroutes: [{ match: POST /a, bind: principal }, { match: POST /b, key_header: X }]\n",
			"tenant: { from: header, name: X-A, principal: X-C }\nroutes: [{ match: POST /a, bind: principal }, { match: POST /b, key_header: X }]\n", []string{
				"tenant.principal is X-B in the store, and X-C in the configuration",
			}},
		"route": {"", "routes: [{ match: POST /a, key_header: X-Request-Id }]\n", []string{
			"routes[POST /a] is as in defaults in the store, and key_header X-Request-Id, scope tenant, bind none in the configuration",
		}},
		"route that is gone": {"routes: [{ match: POST /a, scope: operation }]\n", "", []string{
			"routes[POST /a] is key_header Idempotency-Key, scope operation, bind none in the store, and as in defaults in the configuration",
		}},
		"pattern that names operations": {"defaults: { scope: operation }\n", "defaults: { scope: operation }\nroutes: [{ match: \"POST /a/{id}\" }]\n", []string{
			"routes[POST /a/{id}] is as in defaults in the store, and key_header Idempotency-Key, scope operation by pattern, bind none in the configuration",
		}},
		"folder that names operations": {"defaults: { scope: operation }\n", "defaults: { scope: operation }\nroutes: [{ match: POST /a/ }]\n", []string{
			"routes[POST /a/] is as in defaults in the store, and key_header Idempotency-Key, scope operation by pattern, bind none in the configuration",
		}},
		"host that names operations": {"defaults: { scope: operation }\n", "defaults: { scope: operation }\nroutes: [{ match: POST api.example.com/a }]\n", []string{
			"routes[POST api.example.com/a] is as in defaults in the store, and key_header Idempotency-Key, scope operation by pattern, bind none in the configuration",
		}},
		"route of all hosts beside that of one": {"routes: [{ match: POST api.example.com/a, key_header: X }]\n", "routes: [{ match: POST api.example.com/a, key_header: X }, { match: POST /a }]\n", []string{
			"routes[POST /a] is as in defaults in the store, and key_header Idempotency-Key, scope tenant, bind none in the configuration",
		}},
		"principal of the defaults beside a route without": {"tenant: { from: header, name: X-A, principal: X-B }\ndefaults: { bind: principal }\nroutes: [{ match: POST /a, bind: none }]\n",
			"tenant: { from: header, name: X-A, principal: X-C }\ndefaults: { bind: principal }\nroutes: [{ match: POST /a, bind: none }]\n", []string{
				"tenant.principal is X-B in the store, and X-C in the configuration",
			}},
		"route of another method": {"routes: [{ match: POST /a, key_header: X }]\n", "routes: [{ match: POST /a, key_header: X }, { match: /a }]\n", []string{
			"routes[/a] is as in defaults in the store, and key_header Idempotency-Key, scope tenant, bind none in the configuration",
		}},
		"folder around another route": {"routes: [{ match: POST /a/b, key_header: X }]\n", "routes: [{ match: POST /a/b, key_header: X }, { match: POST /a/ }]\n", []string{
			"routes[POST /a/] is as in defaults in the store, and key_header Idempotency-Key, scope tenant, bind none in the configuration",
		}},
		"route that takes requests from all others": {"routes: [{ match: POST /, key_header: X }]\n", "routes: [{ match: POST /, key_header: X }, { match: POST /b }]\n", []string{
			"routes[POST /b] is as in defaults in the store, and key_header Idempotency-Key, scope tenant, bind none in the configuration",
		}},
		"stored requests of the defaults": {"defaults: { scope: operation }\n", "defaults: { scope: operation, async: true }\n", []string{
			"defaults.scope is operation in the store, and operation by method in the configuration",
		}},
		"route that takes requests from another": {"routes: [{ match: POST /a/, key_header: X }]\n", "routes: [{ match: POST /a/, key_header: X }, { match: POST /a/b }]\n", []string{
			"routes[POST /a/b] is as in defaults in the store, and key_header Idempotency-Key, scope tenant, bind none in the configuration",
		}},
		"route that takes requests from a wildcard": {"routes: [{ match: \"POST /a/{x}\", key_header: X }]\n", "routes: [{ match: \"POST /a/{x}\", key_header: X }, { match: POST /a/b }]\n", []string{
			"routes[POST /a/b] is as in defaults in the store, and key_header Idempotency-Key, scope tenant, bind none in the configuration",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, d := range of(t, c.after, nil).Differences(of(t, c.before, nil)) {
				got = append(got, d.String())
			}
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
			}
		})
	}
}

func jwt(claim, issuer string) string {
	return fmt.Sprintf("tenant: { from: jwt, claim: %s, issuer: %s, audience: us, jwks: keys.json }\n", claim, issuer)
}

// What decides anything else is no difference, and neither is another way to say the
// same.
func TestNoDifferences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string][2]string{
		"upstream and store":   {"store: sqlite:a.db\n", "store: postgres://other:password@host/db\nlisten: \":9999\"\nlimits: { active_keys: 7 }\n"},
		"said or default":      {"", "profile: ietf\ndefaults: { key_header: idempotency-key, scope: tenant, bind: none }\n"},
		"behaviour":            {"", "defaults: { observe: true, required: false, effects: keyed, derive_key: X, lapse: rerun, retention: 7d, strict: true }\n"},
		"fields":               {"", "defaults: { include: [/a], exclude: [/b], fingerprint_headers: [Accept] }\n"},
		"plain route":          {"", "routes: [{ match: POST /a, retention: 7d }, { match: \"POST /b/{id}\", off: true }]\n"},
		"literal operation":    {"defaults: { scope: operation }\n", "defaults: { scope: operation }\nroutes: [{ match: POST /a }, { match: PATCH /b }]\n"},
		"route beside another": {"routes: [{ match: POST /a/, key_header: X }]\n", "routes: [{ match: POST /a/, key_header: X }, { match: POST /b }, { match: POST /ab }]\n"},
		"route below another":  {"routes: [{ match: POST /a, key_header: X }]\n", "routes: [{ match: POST /a, key_header: X }, { match: POST /a/b }]\n"},
		"stored operation":     {"defaults: { scope: operation }\n", "defaults: { scope: operation }\nroutes: [{ match: POST /a, async: true }]\n"},
		"order of routes":      {"routes: [{ match: POST /a, key_header: X }, { match: POST /b, key_header: Y }]\n", "routes: [{ match: POST /b, key_header: y }, { match: \"POST  /a\", key_header: x }]\n"},
		"case of a host":       {"routes: [{ match: POST API.example.com/a, key_header: X }]\n", "routes: [{ match: POST api.example.com/a, key_header: X }]\n"},
		"off and on":           {"routes: [{ match: POST /a, key_header: X, off: true }]\n", "routes: [{ match: POST /a, key_header: X }]\n"},
		"proxies":              {"tenant: { from: header, name: X-A, trusted_proxies: [10.0.0.0/8] }\n", "tenant: { from: header, name: x-a, trusted_proxies: [127.0.0.1, 10.1.0.0/16] }\n"},
		"case of a principal":  {"tenant: { from: header, name: X-A, principal: x-b }\ndefaults: { bind: principal }\n", "tenant: { from: header, name: X-A, principal: X-B }\ndefaults: { bind: principal }\n"},
		"unused principal":     {"tenant: { from: header, name: X-A, principal: X-B }\n", "tenant: { from: header, name: X-A }\n"},
		"keys of tokens":       {jwt("org", "me"), strings.ReplaceAll(strings.ReplaceAll(jwt("org", "me"), "keys.json", "others.json"), "audience: us", "audience: them, algorithms: [ES384]")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d := of(t, c[1], nil).Differences(of(t, c[0], nil)); len(d) > 0 {
				t.Errorf("there is %s", identity.Describe(d))
			}
		})
	}
}

// The index secret decides which record a request meets, the keys of the contents do
// not. Neither can be found in the settings.
func TestEncryption(t *testing.T) {
	t.Parallel()
	text := sealed.GenerateKeys()
	plain, one := of(t, "", nil), of(t, "", keyring(t, text))
	added, number, err := sealed.AddKey(text)
	if err != nil {
		t.Fatal(err)
	}
	rotated, err := sealed.UseKey(added, number)
	if err != nil {
		t.Fatal(err)
	}
	if d := of(t, "", keyring(t, rotated)).Differences(one); len(d) > 0 {
		t.Errorf("after a rotation: %s", identity.Describe(d))
	}
	for name, other := range map[string]identity.Settings{"no keys": plain, "other keys": of(t, "", keyring(t, sealed.GenerateKeys()))} {
		if d := other.Differences(one); len(d) != 1 || d[0].Setting != "encryption.keys_file" {
			t.Errorf("%s: %s", name, identity.Describe(d))
		}
	}
	var secrets struct {
		Index string
		Keys  map[string]string
	}
	if err := json.Unmarshal(rotated, &secrets); err != nil || secrets.Index == "" || len(secrets.Keys) != 2 {
		t.Fatalf("%+v, %v", secrets, err)
	}
	noted := fmt.Sprint(of(t, "store: postgres://u:hunter2@h/db\nadmin: { listen: \":8081\", token: a-token-of-operators }\n", keyring(t, rotated)))
	for _, secret := range []string{secrets.Index[:8], secrets.Keys["1"][:8], secrets.Keys["2"][:8], "hunter2", "a-token"} {
		if strings.Contains(noted, secret) {
			t.Errorf("%s shows a secret", noted)
		}
	}
}

package httpkey_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

var update = flag.Bool("update", false, "write the published files anew")

// fragment is what a test reads of an OpenAPI description.
type fragment struct {
	Components struct {
		Parameters map[string]struct {
			Name, In, Description, Example string
			Required                       bool
		}
		Headers   map[string]any
		Schemas   map[string]any
		Responses map[string]struct {
			Description string
			Headers     map[string]map[string]string
			Content     map[string]any
			Status      any    `json:"x-status"`
			Retryable   bool   `json:"x-retryable"`
			SafeNewKey  bool   `json:"x-safe-new-key"`
			Type        string `json:"x-problem-type-url"`
		}
	}
	Policy map[string]any `json:"x-idempotency"`
}

func describe(t *testing.T, g *httpkey.Guard) fragment {
	t.Helper()
	text, err := g.OpenAPI()
	must(t, err)
	var f fragment
	must(t, json.Unmarshal(text, &f))
	return f
}

// codes are all the problems that a client may meet.
var codes = []string{
	"answer-encoded", "attempt-failed", "attempt-unknown", "body-too-large", "body-unreadable", "caller-unidentified", "encoding-unsupported",
	"first-sent-malformed", "first-sent-missing", "first-sent-stale", "guarded-twice", "in-flight", "key-expired", "key-malformed", "key-missing", "key-personal-data", "key-reused",
	"key-too-short", "key-unknown", "method-override", "no-answer", "not-committed", "not-in-transaction", "outcome-pending", "outcome-unknown", "record-unreadable", "request-unreadable", "response-not-stored", "route-unknown", "rpc-unsupported", "store-unavailable",
	"too-many-active-keys", "too-many-lookups", "too-many-new-keys",
}

func TestOpenAPIListsEachProblem(t *testing.T) {
	t.Parallel()
	for _, p := range []*httpkey.Profile{httpkey.IETF, httpkey.Stripe} {
		b := setup(t, isProfile(p))
		f := describe(t, b.guard)
		var listed []string
		for code, r := range f.Components.Responses {
			listed = append(listed, code)
			if r.Description == "" || len(r.Content) != 1 || r.Headers["Link"] == nil || !strings.HasSuffix(r.Type, "/docs/problems/"+code+".md") {
				t.Errorf("%s: %+v", code, r)
			}
			for _, h := range r.Headers {
				if name := strings.TrimPrefix(h["$ref"], "#/components/headers/"); f.Components.Headers[name] == nil {
					t.Errorf("%s refers to %q, which is not there", code, h["$ref"])
				}
			}
		}
		if slices.Sort(listed); !slices.Equal(listed, codes) {
			t.Errorf("listed are\n%q, want\n%q", listed, codes)
		}
		if _, ok := f.Components.Responses["key-missing"].Content[map[bool]string{true: "application/json", false: "application/problem+json"}[p.Envelope == httpkey.StripeJSON]]; !ok {
			t.Errorf("%s: a refusal is %v", p.Name, f.Components.Responses["key-missing"].Content)
		}
		if got := f.Components.Responses["key-reused"].Status; got != float64(p.Mismatch) {
			t.Errorf("%s: a mismatch is %v", p.Name, got)
		}
		key := f.Components.Parameters["IdempotencyKey"]
		if key.Name != "Idempotency-Key" || key.In != "header" || !key.Required || !strings.Contains(key.Description, "24h") || (key.Example[0] == '"') == p.Opaque {
			t.Errorf("the parameter is %+v", key)
		}
		if f.Policy["profile"] != p.Name || f.Policy["retention-seconds"] != 86400.0 || f.Policy["effects"] != "unprotected" {
			t.Errorf("the policy is %v", f.Policy)
		}
	}
}

// What is published is what is sent.
func TestOpenAPITellsTheTruth(t *testing.T) {
	t.Parallel()
	for _, row := range rows {
		change := []func(*config){func(*config) {}}
		if row.change != nil {
			change = append(change, row.change)
		}
		b := setup(t, change...)
		got := row.bring(t, b)
		said, published := got.problem(t), describe(t, b.guard).Components.Responses[row.code]
		if published.Status != float64(got.status) || published.Retryable != said.Retryable || published.SafeNewKey != said.SafeNewKey || published.Type != said.Type {
			t.Errorf("%s: published %+v, sent %d %+v", row.situation, published, got.status, said)
		}
	}
	b := setup(t, withPolicy(retrysafe.Policy{InFlight: retrysafe.InFlightAccept}))
	b.plant(t, func(*retrysafe.Write) {})
	got := b.post(t, key, `{"a":1}`)
	all := describe(t, b.guard).Components.Responses
	if published := all["in-flight"]; published.Status != float64(got.status) {
		t.Errorf("in flight: published %v, sent %d", published.Status, got.status)
	}
	if published := all["outcome-unknown"]; published.Status != 409.0 {
		t.Errorf("where requests in flight are accepted, an unknown outcome is published as %v", published.Status)
	}
}

func TestOpenAPIFollowsTheOptions(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) {
		c.Optional, c.Header, c.ProblemBase = true, "x-key", "https://api.example/problems/"
	})
	f := describe(t, b.guard)
	if p := f.Components.Parameters["IdempotencyKey"]; p.Required || p.Name != "X-Key" {
		t.Errorf("the parameter is %+v", p)
	}
	if got := f.Components.Responses["key-reused"].Type; got != "https://api.example/problems/key-reused" {
		t.Errorf("the type is %q", got)
	}
	if p, ok := f.Components.Parameters["IdempotencyFirstSent"]; ok {
		t.Errorf("the parameter is %+v, and is not looked at", p)
	}
	for _, required := range []bool{false, true} {
		dated := setup(t, func(c *config) { c.FirstSent, c.RequireFirstSent = !required, required })
		if p := describe(t, dated.guard).Components.Parameters["IdempotencyFirstSent"]; p.Name != "Idempotency-First-Sent" || p.In != "header" || p.Required != required {
			t.Errorf("the parameter is %+v, required %v", p, required)
		}
	}
	optional := setup(t, func(c *config) { c.RequireFirstSent, c.Optional = true, true })
	if p := describe(t, optional.guard).Components.Parameters["IdempotencyFirstSent"]; p.Name == "" || p.Required {
		t.Errorf("a request without a key needs no date, and the parameter is %+v", p)
	}
	got := b.post(t, "", `{}`, with("X-Key", "a,b"))
	if p := got.refused(t, 400, "key-malformed"); p.Type != "https://api.example/problems/key-malformed" {
		t.Errorf("the type is %q", p.Type)
	}
}

// docs/openapi/idempotency.json is the fragment of a guard with no options.
func TestOpenAPIIsPublished(t *testing.T) {
	t.Parallel()
	e, err := retrysafe.New(memstore.New(nil), nil)
	must(t, err)
	g, err := httpkey.New(e, tenant, nil)
	must(t, err)
	want, err := g.OpenAPI()
	must(t, err)
	want = append(want, '\n')
	file := filepath.Join("..", "docs", "openapi", "idempotency.json")
	if *update {
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, want, 0o644))
	}
	got, err := os.ReadFile(file)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the default guard says; run go test ./httpkey -run OpenAPI -update", file)
	}
}

func TestEachProblemHasAPage(t *testing.T) {
	t.Parallel()
	for _, code := range codes {
		text, err := os.ReadFile(filepath.Join("..", "docs", "problems", code+".md"))
		if err != nil {
			t.Errorf("%s has no page: %v", code, err)
			continue
		}
		if !strings.Contains(string(text), code) {
			t.Errorf("the page of %s does not name it", code)
		}
	}
}

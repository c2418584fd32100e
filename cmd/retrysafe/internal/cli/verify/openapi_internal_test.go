package verify

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/retrysafe/retrysafe/conform"
)

// A value that is made up is one that the schema allows: an API that refuses it would not
// be verified.
func TestMadeUpValuesAreAllowed(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{type: integer, minimum: 5}`:                                      `5`,
		`{type: integer, minimum: 5, exclusiveMinimum: true}`:              `6`,
		`{type: number, maximum: 0.5}`:                                     `0.5`,
		`{type: integer, minimum: 5, multipleOf: 4}`:                       `8`,
		`{type: integer}`:                                                  `1`,
		`{type: boolean}`:                                                  `true`,
		`{type: string}`:                                                   `"conform"`,
		`{type: string, minLength: 9}`:                                     `"conformxx"`,
		`{type: string, maxLength: 3}`:                                     `"con"`,
		`{type: string, format: date}`:                                     `"2030-01-02"`,
		`{type: string, format: uuid}`:                                     `"c0f0c0f0-0000-4000-8000-000000000000"`,
		`{type: string, enum: [eur, usd]}`:                                 `"eur"`,
		`{type: string, default: a, enum: [b, a]}`:                         `"a"`,
		`{type: string, pattern: "^a+$", example: aa}`:                     `"aa"`,
		`{type: array, items: {type: integer}}`:                            `[1]`,
		`{type: array, minItems: 3, items: {type: integer}}`:               `[1,1,1]`,
		`{oneOf: [{type: integer}, {type: string}]}`:                       `1`,
		`{anyOf: [{type: string, format: email}, {type: integer}]}`:        `"conform@example.com"`,
		`{type: object}`:                                                   `{}`,
		`{type: object, properties: {a: {type: string}}}`:                  `{}`,
		`{type: object, properties: {a: {type: string, example: x}}}`:      `{"a":"x"}`,
		`{type: object, required: [a], properties: {a: {type: boolean}}}`:  `{"a":true}`,
		`{required: [a], properties: {a: {type: string, readOnly: true}}}`: `{}`,
		`{allOf: [{required: [a], properties: {a: {type: integer}}}, {required: [b], properties: {b: {type: boolean}}}]}`:                                      `{"a":1,"b":true}`,
		`{required: [a], properties: {a: {required: [b], properties: {b: {required: [c], properties: {c: {type: array, items: {type: array, items: {}}}}}}}}}`: `{"a":{"b":{"c":[["conform"]]}}}`,
	} {
		doc := load(t, "components: {schemas: {S: "+schema+"}}\npaths: {}\n")
		got, err := sample(doc.Components.Schemas["S"], 0)
		if err != nil {
			t.Errorf("%s: %v", schema, err)
			continue
		}
		if text, err := json.Marshal(got); err != nil || string(text) != want {
			t.Errorf("%s: %s, %v, want %s", schema, text, err, want)
		}
	}
	endless := load(t, "components: {schemas: {S: {required: [next], properties: {next: {$ref: '#/components/schemas/S'}}}}}\npaths: {}\n")
	if v, err := sample(endless.Components.Schemas["S"], 0); err == nil || !strings.Contains(err.Error(), "give an example") {
		t.Errorf("a schema without an end: %v, %v", v, err)
	}
}

func load(t *testing.T, rest string) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData([]byte("openapi: 3.0.3\ninfo: {title: x, version: '1'}\n" + rest))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// What one operation needs comes from those before it, and what is deleted is not needed
// any more.
func TestOperationsComeInTheirOrder(t *testing.T) {
	t.Parallel()
	const answers = "responses: {default: {description: x}}"
	all := operations(load(t, `paths:
  /a-refunds:
    post: {requestBody: {content: {application/json: {example: {payment_id: p}}}}, `+answers+`}
  /payments/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: string}}]
    delete: {`+answers+`}
    get: {`+answers+`}
    patch: {`+answers+`}
  /everything:
    delete: {`+answers+`}
  /payments:
    parameters: [{name: mode, in: query, required: true, schema: {type: string, enum: [a b]}}, {name: other, in: query, schema: {type: string}}]
    post:
      parameters: [{name: X-Version, in: header, required: true, example: 7, schema: {type: integer}}, {name: idempotency-key, in: header, required: true, schema: {type: string}}]
      requestBody: {content: {application/x-www-form-urlencoded: {example: {a: {b: [c, {d: e}]}}}}}
      `+answers+`
  /shops/{name}/orders:
    parameters: [{name: name, in: path, required: true, example: a/b, schema: {type: string}}]
    post: {requestBody: {required: true, content: {text/plain: {schema: {type: string}}}}, `+answers+`}
`))
	var names []string
	for _, op := range all {
		names = append(names, op.Name)
	}
	want := []string{"POST /payments", "POST /a-refunds", "PATCH /payments/{id}", "POST /shops/{name}/orders", "DELETE /everything", "DELETE /payments/{id}"}
	if !reflect.DeepEqual(names, want) {
		t.Errorf("the order is %q, want %q", names, want)
	}
	pay := all[0].Request
	if pay.Path != "/payments?mode=a+b" || string(pay.Body) != "a%5Bb%5D%5B0%5D=c&a%5Bb%5D%5B1%5D%5Bd%5D=e" || len(pay.Header) != 2 ||
		pay.Header.Get("X-Version") != "7" || pay.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		t.Errorf("a payment is %s %s, with %v", pay.Path, pay.Body, pay.Header)
	}
	if all[3].Missing == "" || all[3].Request.Path != "/shops/{name}/orders" {
		t.Errorf("an operation that cannot be sent is %+v", all[3])
	}
}

// A profile of one's own overrides each rule of its base, and nothing else.
func TestProfilesOverrideTheirBase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "house.yaml")
	for yaml, change := range map[string]func(*conform.Profile){
		"name: house":                   func(p *conform.Profile) { p.Name = "house" },
		"header: X-Key":                 func(p *conform.Profile) { p.Header = "X-Key" },
		"optional: true":                func(p *conform.Profile) { p.Optional = true },
		"opaque: true":                  func(p *conform.Profile) { p.Opaque = true },
		"uuid: true":                    func(p *conform.Profile) { p.UUID = true },
		"max_key: 99":                   func(p *conform.Profile) { p.MaxKey = 99 },
		"missing: [428]":                func(p *conform.Profile) { p.Missing = []int{428} },
		"malformed: [422]":              func(p *conform.Profile) { p.Malformed = []int{422} },
		"mismatch: [409]":               func(p *conform.Profile) { p.Mismatch = []int{409} },
		"in_flight: [425]":              func(p *conform.Profile) { p.InFlight = []int{425} },
		"marker: X-Replayed":            func(p *conform.Profile) { p.Marker = "X-Replayed" },
		"expires: X-Expires":            func(p *conform.Profile) { p.Expires = "X-Expires" },
		"unknown: X-Unknown":            func(p *conform.Profile) { p.Unknown = "X-Unknown" },
		"keeps_failures: true":          func(p *conform.Profile) { p.KeepsFailures = true },
		"severity: {replay/etc: minor}": func(p *conform.Profile) { p.Severity = map[string]string{"replay/etc": "minor"} },
	} {
		if err := os.WriteFile(path, []byte(yaml+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		want := *conform.IETF
		want.Name, want.Severity = path, nil
		change(&want)
		if got, err := readProfile(path); err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("%s: %+v, %v, want %+v", yaml, got, err, &want)
		}
	}
	if err := os.WriteFile(path, fmt.Append(nil, "base: stripe\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readProfile(path); err != nil || got.MaxKey != conform.Stripe.MaxKey || got.KeepsFailures != conform.Stripe.KeepsFailures || got.Header != conform.Stripe.Header {
		t.Errorf("by stripe: %+v, %v", got, err)
	}
}

// The operation is that of the URL, with its query, or that of --request below the URL.
func TestTargetOfAVerification(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ target, request, url, method, path string }{
		{"http://h:1/pay?a=b", "", "http://h:1", "", "/pay?a=b"},
		{"https://h/pay%2Fx", "", "https://h", "", "/pay%2Fx"},
		{"http://h/api", " PATCH /pay ", "http://h/api", "PATCH", "/pay"},
	} {
		o := options{request: c.request}
		if err := o.readTarget(c.target); err != nil || o.URL != c.url || o.Request.Method != c.method || o.Request.Path != c.path {
			t.Errorf("%s %s: %q %q %q, %v", c.target, c.request, o.URL, o.Request.Method, o.Request.Path, err)
		}
	}
	path := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for size, ok := range map[int64]bool{maxFile: true, maxFile + 1: false} {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if data, err := readFile(nil, path); (err == nil) != ok || ok && int64(len(data)) != size {
			t.Errorf("a file of %d bytes is read as %d, %v", size, len(data), err)
		}
	}
}

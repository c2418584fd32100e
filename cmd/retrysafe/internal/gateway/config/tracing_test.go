package config_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTracing(t *testing.T) {
	t.Parallel()
	off := parse(t, least)
	if tr := off.Tracing; tr.Endpoint != "" || tr.Sample != 1 || tr.Service != "retrysafe" || tr.Timeout != 10*time.Second {
		t.Errorf("by default: %+v", tr)
	}
	file := write(t, "token", "Bearer a-token-of-a-file\n")
	c := parseIn(t, vars{"TOKEN": "a-token-of-the-environment"}, least+`
tracing:
  endpoint: https://collector.example
  sample: 0.05
  service: payments
  timeout: 2s
  metrics_every: 30s
  headers: { X-Api-Key: "${TOKEN}" }
  header_files: { Authorization: `+file+` }
`)
	tr := &c.Tracing
	if tr.URL() != "https://collector.example/v1/traces" || tr.Sample != 0.05 || tr.Service != "payments" || tr.Timeout != 2*time.Second || tr.MetricsEvery != 30*time.Second {
		t.Errorf("%+v", tr)
	}
	if want := map[string]string{"X-Api-Key": "a-token-of-the-environment", "Authorization": "Bearer a-token-of-a-file"}; !maps.Equal(tr.Header(), want) {
		t.Errorf("headers %v", tr.Header())
	}
	if !slices.Contains(c.Files(), file) {
		t.Errorf("the file of a header is not watched: %v", c.Files())
	}
	printed, err := c.Print()
	if err != nil || strings.Contains(string(printed), "a-token-of") {
		t.Errorf("printed, %v:\n%s", err, printed)
	}
	for endpoint, want := range map[string]string{
		"http://127.0.0.1:4318":          "http://127.0.0.1:4318/v1/traces",
		"http://127.0.0.1:4318/":         "http://127.0.0.1:4318/v1/traces",
		"https://c.example/otlp/v1/mine": "https://c.example/otlp/v1/mine",
	} {
		if got := parse(t, least+"\ntracing: { endpoint: \""+endpoint+"\" }\n").Tracing.URL(); got != want {
			t.Errorf("%s is %s, want %s", endpoint, got, want)
		}
	}
	for endpoint, want := range map[string]string{
		"http://127.0.0.1:4318":            "http://127.0.0.1:4318/v1/metrics",
		"https://c.example/otlp/v1/traces": "https://c.example/otlp/v1/metrics",
	} {
		if got := parse(t, least+"\ntracing: { endpoint: \""+endpoint+"\", metrics_every: 1m }\n").Tracing.MetricsURL(); got != want {
			t.Errorf("metrics of %s go to %s, want %s", endpoint, got, want)
		}
	}
}

func TestTracingIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{ endpoint: "127.0.0.1:4318" }`:                                                                                 "tracing.endpoint: it is not the URL of a collector",
		`{ endpoint: "grpc://127.0.0.1:4317" }`:                                                                          "tracing.endpoint: it is not the URL of a collector",
		`{ endpoint: "https://me:secret@c.example" }`:                                                                    "tracing.endpoint: it has a password in it",
		`{ endpoint: "https://c.example?token=1" }`:                                                                      "tracing.endpoint: it is not the URL",
		`{ endpoint: "http://c.example", headers: { Authorization: "Bearer 1" } }`:                                       "use https",
		`{ headers: { Authorization: "Bearer 1" } }`:                                                                     "tracing.endpoint: it is missing",
		`{ endpoint: "https://c.example", sample: 5 }`:                                                                   "tracing.sample: it is the share",
		`{ endpoint: "https://c.example", sample: -0.1 }`:                                                                "tracing.sample: it is the share",
		`{ endpoint: "https://c.example", timeout: 0s }`:                                                                 "tracing.timeout: it must be more than 0",
		`{ endpoint: "https://c.example", metrics_every: 10ms }`:                                                         "tracing.metrics_every: it must be at least 1s",
		`{ endpoint: "https://c.example/mine", metrics_every: 1m }`:                                                      "tracing.metrics_every: the path of tracing.endpoint",
		`{ metrics_every: 1m }`:                                                                                          "tracing.endpoint: it is missing",
		`{ endpoint: "https://c.example", service: "" }`:                                                                 "tracing.service: it is empty",
		`{ endpoint: "https://c.example", headers: { "a b": c } }`:                                                       "is not the name of a header",
		`{ endpoint: "https://c.example", headers: { A: b }, header_files: { a: ` + write(t, "token", "secret") + ` } }`: "headers has it too",
		`{ endpoit: "https://c.example" }`:                                                                               "endpoint",
	} {
		if got := refused(t, least+"\ntracing: "+text+"\n"); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nwant %q", text, got, want)
		}
	}
	parse(t, least+"\ntracing: { endpoint: \"http://collector:4318\", headers: { X-Scope-Orgid: payments } }\n")
	parse(t, least+"\ntracing: { endpoint: \"http://localhost:4318\", headers: { Authorization: \"Bearer 1\" } }\n")
}

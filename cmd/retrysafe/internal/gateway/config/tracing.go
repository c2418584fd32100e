package config

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Tracing is where spans are sent. Without an endpoint none are made.
type Tracing struct {
	// Endpoint is the URL of a collector that takes OTLP over HTTP. Without a path it is
	// /v1/traces.
	Endpoint string
	// Sample is the share of requests that are traced, of those whose client has not
	// decided it, from 0 to 1. Default 1.
	Sample float64
	// Service is the name of this gateway in traces. Default retrysafe.
	Service string
	// Timeout bounds one export. Default 10 s.
	Timeout time.Duration
	// MetricsEvery is how often metrics are sent to the same collector. Zero: never.
	MetricsEvery time.Duration
	// Headers are sent with each export, and so are those of HeaderFiles, whose values are
	// in files of their own.
	Headers     []Header
	HeaderFiles []HeaderFile
}

func defaultTracing() Tracing {
	return Tracing{Sample: 1, Service: "retrysafe", Timeout: 10 * time.Second}
}

func (t *Tracing) fields() section {
	return section{
		{"endpoint", text(&t.Endpoint)},
		{"sample", rate(&t.Sample)},
		{"service", text(&t.Service)},
		{"timeout", span(&t.Timeout)},
		{"metrics_every", span(&t.MetricsEvery)},
		{"headers", headers(&t.Headers)},
		{"header_files", headerFiles(&t.HeaderFiles)},
	}
}

const (
	tracesPath  = "/v1/traces"
	metricsPath = "/v1/metrics"
)

// URL returns the endpoint with its path.
func (t *Tracing) URL() string {
	u, err := url.Parse(t.Endpoint)
	if err == nil && (u.Path == "" || u.Path == "/") {
		u.Path = tracesPath
		return u.String()
	}
	return t.Endpoint
}

// MetricsURL returns where the same collector takes metrics, or nothing if that is not
// known.
func (t *Tracing) MetricsURL() string {
	base, ok := strings.CutSuffix(t.URL(), tracesPath)
	if !ok {
		return ""
	}
	return base + metricsPath
}

// Header returns all headers of an export.
func (t *Tracing) Header() map[string]string {
	all := make(map[string]string, len(t.Headers)+len(t.HeaderFiles))
	for _, h := range t.Headers {
		all[h.Name] = string(h.Value)
	}
	for _, h := range t.HeaderFiles {
		all[h.Name] = string(h.Value)
	}
	return all
}

// tracingSecrets are the headers of exports that may be in files.
func (c *Config) tracingSecrets() (all []secretFile) {
	for i, h := range c.Tracing.HeaderFiles {
		all = append(all, secretFile{"tracing.headers." + h.Name, "tracing.header_files." + h.Name, func(c *Config) (func(string), *string) {
			h := &c.Tracing.HeaderFiles[i]
			return func(s string) { h.Value = Secret(s) }, &h.File
		}})
	}
	return all
}

// tracingLiterals are the paths of secrets of exports that stand in the file itself.
func (c *Config) tracingLiterals() (paths []string) {
	for _, h := range c.Tracing.Headers {
		if h.Value != "" && credential(h.Name) {
			paths = append(paths, "tracing.headers."+h.Name)
		}
	}
	return paths
}

// tracing refuses what cannot be sent to, or not safely.
func (k *checker) tracing() {
	t := &k.Tracing
	if t.Sample < 0 || t.Sample > 1 {
		k.refuse("tracing.sample", "it is the share of requests that are traced, from 0 to 1, such as 0.05")
	}
	if t.Timeout <= 0 {
		k.refuse("tracing.timeout", "it must be more than 0")
	}
	if t.MetricsEvery < 0 || t.MetricsEvery > 0 && t.MetricsEvery < time.Second {
		k.refuse("tracing.metrics_every", "it must be at least 1s, or 0 to send no metrics")
	}
	if t.Service == "" {
		k.refuse("tracing.service", "it is empty; it is the name of this gateway in traces")
	}
	for _, h := range t.HeaderFiles {
		if slices.ContainsFunc(t.Headers, func(o Header) bool { return strings.EqualFold(o.Name, h.Name) }) {
			k.refuse("tracing.header_files."+h.Name, "headers has it too; keep one of them")
		}
	}
	for name, value := range t.Header() {
		switch {
		case !isToken(name):
			k.refuse("tracing.headers", "%w", errNoHeader(name))
		case strings.ContainsFunc(value, unicode.IsControl):
			k.refuse("tracing.headers."+name, "it has control characters in it")
		}
	}
	if t.Endpoint == "" {
		if len(t.Headers)+len(t.HeaderFiles) > 0 || t.MetricsEvery > 0 {
			k.refuse("tracing.endpoint", "it is missing; it is the URL of a collector, such as http://127.0.0.1:4318")
		}
		return
	}
	u, err := url.Parse(t.Endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		k.refuse("tracing.endpoint", "it is not the URL of a collector that takes OTLP over HTTP, such as http://127.0.0.1:4318")
	case u.User != nil:
		k.refuse("tracing.endpoint", "it has a password in it; put that into headers, or into a file that header_files names")
	case u.Scheme == "http" && !isLocal(u.Hostname()) && slices.ContainsFunc(slices.Collect(maps.Keys(t.Header())), credential):
		k.refuse("tracing.endpoint", "headers would be sent there unencrypted, and one of them is a credential; use https")
	case t.MetricsEvery > 0 && t.MetricsURL() == "":
		k.refuse("tracing.metrics_every", "the path of tracing.endpoint does not end with %s, so it is not known where the collector takes metrics; leave the path out, or let it end so", tracesPath)
	}
}

// isLocal reports whether a host is this machine.
func isLocal(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

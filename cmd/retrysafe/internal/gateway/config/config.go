// Package config is the configuration of the gateway: one strict YAML file, with
// ${ENV} and *_file for secrets.
//
// What [Load] and [Parse] return is complete: defaults are filled in, each route has
// its settings whole, and what cannot work was refused with the line and the field.
package config

import (
	"net/netip"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Config is what one file says.
type Config struct {
	// Listen is where clients come in.
	Listen string
	// Upstream is the service that is guarded: http or https, host, and perhaps a
	// path to put before each request's own.
	Upstream string
	// Store is a URL as package storeurl has it. StoreFile is the file that it was
	// read from, if it was.
	Store, StoreFile string
	// StoreTimeout is how long a request waits for the store before it is refused.
	// Default 1.5 s.
	StoreTimeout time.Duration
	// Profile is "ietf" or "stripe".
	Profile string
	Tenant  Tenant
	// Defaults are the settings of guarded requests that no route matches: POST and
	// PATCH on any path.
	Defaults Settings
	Routes   []Route
	// Limits are per tenant.
	Limits Limits
	// Encryption seals the store.
	Encryption Encryption
	Admin      Admin
	// TLS is what clients are shown. Without it they speak plain HTTP.
	TLS TLS
	// UpstreamTLS is how an https upstream is spoken to.
	UpstreamTLS UpstreamTLS
	Server      Server
	Cache       Cache
	Janitor     Janitor
	Reconcile   Reconcile
	// Webhooks are where providers send their events.
	Webhooks []Webhook
	Metrics  Metrics
	Tracing  Tracing
	Ledger   []Ledger

	src *source
}

// A Route is one pattern of [http.ServeMux] and how it behaves.
type Route struct {
	// Match is the pattern. Without a method it is for POST and PATCH; PUT and
	// DELETE are guarded only where a pattern names them.
	Match string
	// Line is where the file has it, for messages. Zero if there is no file.
	Line int
	Settings
}

// Settings are how the requests of one route are treated.
type Settings struct {
	// Off lets requests pass untouched. Observe counts and reports, and enforces
	// nothing.
	Off, Observe bool
	// Required refuses requests without a key. It is on by default; off they pass
	// unguarded.
	Required bool
	// Async stores requests and runs them later.
	Async bool
	// Policy is what the engine is given. Its OnFailure may be
	// [retrysafe.FailureDefault]: then the profile decides.
	Policy retrysafe.Policy

	// KeyHeader is where the client's key is. Default Idempotency-Key.
	KeyHeader string
	// ForwardKey is the header in which the upstream gets the client's key as it
	// is, DeriveKey the one in which it gets a key derived from tenant and key, so
	// that two tenants never meet there. At most one of them is set. Without
	// either the upstream gets none.
	ForwardKey, DeriveKey string

	// Timeout bounds the upstream's answer, its body included. Default 30 s, or
	// MaxRun if that is shorter.
	Timeout time.Duration
	// MaxRequest and MaxResponse bound bodies, in bytes.
	MaxRequest, MaxResponse int64
	// Concurrency is how many requests of this route may be at the upstream at
	// once; zero is no bound.
	Concurrency int
	// Decode takes gzip bodies and hands them on decoded; otherwise they are
	// refused.
	Decode bool
	// Stream lets a flushed response through instead of holding it.
	Stream bool
	// CloseDelimited takes a response without a length that ends with its connection
	// for whole.
	CloseDelimited bool
	// PerOperation makes a key belong to this route alone (scope: operation).
	PerOperation bool
	// BindPrincipal narrows a tenant's keys to one principal (bind: principal).
	BindPrincipal bool

	// Include, Exclude and FingerprintHeaders choose what counts in the
	// fingerprint, ReplayHeaders what is kept of a response besides the default.
	Include, Exclude                  []string
	FingerprintHeaders, ReplayHeaders []string
	// KeepHeaders and KeepCredentials are what is kept of an async request's.
	KeepHeaders, KeepCredentials []string
	// Strict, MinKeyLength, ShortKeys and PersonalData judge keys: ignore, warn or
	// refuse.
	Strict                  bool
	MinKeyLength            int
	ShortKeys, PersonalData string
	// FirstSent says whether a request has to say when it was first sent.
	FirstSent FirstSent
	// AmbiguousPaths is what becomes of a request whose path servers may read as one of
	// another route: [AmbiguousRefuse], which is also what no word means, or
	// [AmbiguousGuard], which needs Required.
	AmbiguousPaths string
}

const (
	// AmbiguousRefuse refuses it.
	AmbiguousRefuse = "refuse"
	// AmbiguousGuard guards it by the route that its path has as it was sent.
	AmbiguousGuard = "guard"
)

// FirstSent is how the header Idempotency-First-Sent is treated.
type FirstSent uint8

const (
	// FirstSentIgnored leaves it alone (first_sent: false).
	FirstSentIgnored FirstSent = iota
	// FirstSentChecked refuses requests that were first sent before the retention (true).
	FirstSentChecked
	// FirstSentRequired refuses keyed requests without it, too (required).
	FirstSentRequired
)

// Tenant is how a request's tenant is found out. There is no default: keys of
// tenants that are not told apart collide.
type Tenant struct {
	// From is "header", "bearer", "jwt" or "none".
	From string
	// Name is the header (from: header).
	Name string
	// TrustedProxies are the addresses that may set it (from: header). Default: this
	// machine.
	TrustedProxies []netip.Prefix
	// Principal is the header, or the claim, that names a principal of the tenant,
	// for routes that bind keys to it. Default X-Principal-Id, or sub,
	// where there is such a route.
	Principal string

	// Claim is the tenant's (from: jwt).
	Claim string
	// JWKS is a URL or a file with the keys that tokens are signed with.
	JWKS             string
	Issuer, Audience string
	// Algorithms are those that are accepted. Default RS256, ES256 and EdDSA.
	Algorithms []string
}

// Limits bound what one tenant may do; zero is no limit.
type Limits struct {
	NewKeysPerSecond float64
	NewKeysBurst     int
	LookupsPerSecond float64
	ActiveKeys       int
	// InFlight is how many requests of one tenant may be at the upstream at once.
	InFlight int
}

// Encryption names the keys that records are sealed with.
type Encryption struct{ KeysFile string }

// Admin is the operators' listener. Without an address and a socket there is none.
type Admin struct {
	Listen string
	// Socket is the path of a unix socket for operators on this machine.
	Socket string
	// Tokens are those of single operators, beside Token.
	Tokens []AdminToken
	// Token is what operators show as a bearer. With Listen or Socket it is required,
	// unless there are Tokens. TokenFile is the file that it was read from, if it was.
	Token     Secret
	TokenFile string
	// MetricsToken opens /metrics and nothing else, for a scraper. MetricsTokenFile is
	// the file that it was read from, if it was.
	MetricsToken     Secret
	MetricsTokenFile string
	// Proof is the file with a report of "retrysafe prove --format json" that the console
	// shows.
	Proof string
	TLS   TLS
}

// TLS is a certificate, as PEM files that are read again when they change.
type TLS struct{ CertFile, KeyFile string }

// UpstreamTLS is how an https upstream is checked, and what it is shown.
type UpstreamTLS struct {
	// CAFile replaces the machine's roots.
	CAFile string
	// ServerName replaces the URL's host.
	ServerName string
	// CertFile and KeyFile are shown to it.
	CertFile, KeyFile string
}

// Server bounds what connections may do.
type Server struct {
	// MaxHeader bounds a request's head. Default 64 KiB.
	MaxHeader int64
	// MaxConnections is how many clients may be connected. Streams of HTTP/2 beyond the
	// first of a connection count too. An address may have as many as are still free,
	// unless it is one of the trusted proxies. Default 10,000.
	MaxConnections int
	// MaxMemory bounds the memory for the bodies and answers of all guarded requests
	// together, in bytes. Zero is a quarter of the container's limit, or 256 MiB without
	// one.
	MaxMemory int64
	// MinBodyRate is how fast a body must arrive, in bytes per second, after ReadHeader
	// is over. Zero is no bound. Default 1 KiB.
	MinBodyRate int64
	// ReadHeader, ReadBody, Write and Idle bound a connection's phases. Write is how
	// long a client may refuse to take a piece of an answer; a whole one may take
	// longer. Default 10 s, 1, 2 and 2 minutes.
	ReadHeader, ReadBody, Write, Idle time.Duration
	// Drain is how long requests that were accepted may take to end after SIGTERM.
	// Default 30 s.
	Drain time.Duration
	// DrainDelay is how long requests are still accepted after SIGTERM, while readyz
	// says no, so that balancers notice. Default none.
	DrainDelay time.Duration
	// UpstreamConnections is how many connections to the upstream are kept.
	// Default 256.
	UpstreamConnections int
	// DialTimeout bounds the way to the upstream. Default 5 s.
	DialTimeout time.Duration
}

// Cache is the memory for finished answers.
type Cache struct {
	// Bytes is its size. Default 32 MiB; negative is none.
	Bytes int64
	// MaxAge is how long an answer is taken from it without asking the store.
	// Default 1 minute.
	MaxAge time.Duration
	// Shared is the URL of a Redis that gateways share for finished answers. None if empty.
	Shared string
}

// Janitor is when background duties come round. Off leaves them to others.
type Janitor struct {
	Off         bool
	Sweep, Reap time.Duration
	// Tombstone is how long an expired key is remembered. It is 30 days by default
	// where a route's on_expired is gone, and zero where there is none.
	Tombstone time.Duration
}

package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// Check reports all that is wrong with a complete configuration, as far as that
// can be known without opening anything.
func (c *Config) Check() error {
	return join(c.problems(func(string) bool { return false }))
}

// A checker collects what is wrong.
type checker struct {
	*Config
	broken func(path string) bool
	errs   []*FieldError
}

// problems returns what is wrong, except with fields that are known to be broken.
func (c *Config) problems(broken func(path string) bool) []*FieldError {
	k := &checker{Config: c, broken: broken}
	k.addresses()
	k.secrets()
	k.operators()
	k.tenant()
	k.encryption()
	k.settings()
	k.routes()
	k.numbers()
	k.reconcile()
	k.webhooks()
	k.tracing()
	k.operation()
	k.ledgers()
	return k.errs
}

// refuse notes what is wrong with the field at path.
func (k *checker) refuse(path, format string, args ...any) {
	if k.broken(path) {
		return
	}
	m := k.src.find(path)
	k.errs = append(k.errs, &FieldError{m.file, m.line, m.column, path, fmt.Errorf(format, args...)})
}

func (k *checker) addresses() {
	k.address("listen", k.Listen)
	if k.Admin.Listen != "" {
		k.address("admin.listen", k.Admin.Listen)
		if samePlace(k.Admin.Listen, k.Listen) {
			k.refuse("admin.listen", "clients come in at %s already; operators need a port of their own", quote(k.Listen))
		}
	}
	k.pair("tls", k.TLS.CertFile, k.TLS.KeyFile)
	k.pair("admin.tls", k.Admin.TLS.CertFile, k.Admin.TLS.KeyFile)
	k.pair("upstream_tls", k.UpstreamTLS.CertFile, k.UpstreamTLS.KeyFile)
	k.upstream()
	if _, err := storeurl.Parse(k.Store); err != nil {
		k.refuse("store", "%w", err)
	}
	if k.Profile != "ietf" && k.Profile != "stripe" {
		k.refuse("profile", "%s is none of ietf, stripe", quote(k.Profile))
	}
}

// address refuses what cannot be listened on.
func (k *checker) address(path, address string) {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || strings.ContainsAny(host, " /") {
		k.refuse(path, "%s is not an address to listen on such as 127.0.0.1:8080, [::1]:8080 or :8080", quote(address))
	}
}

// samePlace reports whether two addresses are of one port of this machine, however they
// are spelled: an address without a host is every address of the machine. Port 0 is any
// that is free.
func samePlace(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil {
		return false
	}
	n, errA := strconv.ParseUint(portA, 10, 16)
	m, errB := strconv.ParseUint(portB, 10, 16)
	if errA != nil || errB != nil || n != m || n == 0 {
		return false
	}
	return sameHost(hostA, hostB)
}

func sameHost(a, b string) bool {
	if a == "" || b == "" || strings.EqualFold(a, b) {
		return true
	}
	if strings.EqualFold(b, "localhost") {
		a, b = b, a
	}
	ip, errB := netip.ParseAddr(b)
	if strings.EqualFold(a, "localhost") { // it is 127.0.0.1, and on most machines ::1 too
		return errB == nil && (ip.IsUnspecified() || ip.Unmap() == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || ip == netip.IPv6Loopback())
	}
	other, errA := netip.ParseAddr(a)
	return errA == nil && errB == nil && (ip.IsUnspecified() || other.IsUnspecified() || ip.Unmap() == other.Unmap())
}

// pair refuses a certificate without its key, and a key without its certificate.
func (k *checker) pair(path, cert, key string) {
	switch {
	case cert != "" && key == "":
		k.refuse(path+".key_file", "it is missing; a certificate is of no use without its key")
	case cert == "" && key != "":
		k.refuse(path+".cert_file", "it is missing; a key is of no use without its certificate")
	}
}

func (k *checker) upstream() {
	u, err := url.Parse(k.Upstream)
	switch {
	case k.Upstream == "":
		k.refuse("upstream", "it is missing; it is the service that is guarded, such as http://127.0.0.1:9000")
		return
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || !validPort(u.Port()):
		k.refuse("upstream", "it is not a URL of a service such as http://127.0.0.1:9000 or https://api.example.com%s", withScheme(k.Upstream))
		return
	case u.User != nil:
		k.refuse("upstream", "it has a user or a password in it, which would not be sent")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		k.refuse("upstream", "%s has something behind its path; queries are the requests' own", quote(k.Upstream))
	case loopback(u.Hostname()) && samePlace(u.Host, k.Listen):
		k.refuse("upstream", "%s is where this gateway itself listens", quote(u.Host))
	}
	if u.Scheme != "https" && k.UpstreamTLS != (UpstreamTLS{}) {
		k.refuse("upstream_tls", "it is for an https upstream, but that is %s", quote(k.Upstream))
	}
}

// withScheme suggests what an upstream without a scheme stands for. Other text is not
// quoted: there may be a password in it.
func withScheme(upstream string) string {
	u, err := url.Parse("http://" + upstream)
	foreign := func(r rune) bool { return r <= ' ' || r > '~' }
	if err != nil || strings.ContainsFunc(upstream, foreign) || strings.ContainsAny(upstream, "@?#") || strings.Contains(upstream, "://") || u.Hostname() == "" || !validPort(u.Port()) {
		return ""
	}
	return "; did you mean http://" + upstream + "?"
}

func validPort(port string) bool {
	if port == "" {
		return true
	}
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

// minToken is how long an operator's token is at least.
const minToken = 16

func (k *checker) secrets() {
	path := "admin.token"
	if k.Admin.TokenFile != "" {
		path = "admin.token_file"
	}
	switch n := len(k.Admin.Token); {
	case k.Admin.Listen == "" && k.Admin.Socket == "":
	case n == 0 && len(k.Admin.Tokens) > 0:
	case n == 0 && k.src.byFlag("admin.listen"):
		k.refuse(path, "it is missing; a request to --admin must show a token of at least %d characters: set $RETRYSAFE_ADMIN_TOKEN to one", minToken)
	case n == 0:
		k.refuse(path, "it is missing; a request to admin.listen must show a token of at least %d characters: token: ${RETRYSAFE_ADMIN_TOKEN}, or token_file", minToken)
	case n < minToken:
		k.refuse(path, "the token has %d characters; it takes at least %d: openssl rand -hex 32", n, minToken)
	}
}

func (k *checker) encryption() {
	if k.Encryption.KeysFile == "" && k.src.said("encryption.keys_file") {
		k.refuse("encryption.keys_file", "it is empty; name the file with the keys, or leave the section out")
	}
}

// minMemory is the least that is of use: each request counts at least 16 KiB, and a
// tenant may hold as much as is free.
const minMemory = 1 << 20

// numbers refuses bounds that bound nothing.
func (k *checker) numbers() {
	l, s, j := &k.Limits, &k.Server, &k.Janitor
	k.notNegative("limits.new_keys_per_second", l.NewKeysPerSecond)
	k.notNegative("limits.new_keys_burst", float64(l.NewKeysBurst))
	k.notNegative("limits.lookups_per_second", l.LookupsPerSecond)
	k.notNegative("limits.active_keys", float64(l.ActiveKeys))
	k.notNegative("limits.in_flight", float64(l.InFlight))
	if l.NewKeysBurst > 0 && l.NewKeysPerSecond == 0 {
		k.refuse("limits.new_keys_burst", "it bounds nothing without new_keys_per_second")
	}
	k.positive("server.max_header", s.MaxHeader)
	k.positive("server.max_connections", int64(s.MaxConnections))
	if s.MaxMemory != 0 && s.MaxMemory < minMemory {
		k.refuse("server.max_memory", "it is %s; it must be at least %s, or 0 for a quarter of the container's limit", printSize(s.MaxMemory), printSize(minMemory))
	}
	k.notNegative("server.min_body_rate", float64(s.MinBodyRate))
	k.positive("server.upstream_connections", int64(s.UpstreamConnections))
	k.lasting("server.read_header", s.ReadHeader)
	k.lasting("server.read_body", s.ReadBody)
	k.lasting("server.write", s.Write)
	k.lasting("server.idle", s.Idle)
	k.lasting("server.drain", s.Drain)
	k.lasting("server.dial_timeout", s.DialTimeout)
	k.lasting("cache.max_age", k.Cache.MaxAge)
	k.sharedCache()
	k.lasting("janitor.sweep", j.Sweep)
	k.lasting("janitor.reap", j.Reap)
	k.notNegative("janitor.tombstone", float64(j.Tombstone))
}

func (k *checker) notNegative(path string, n float64) {
	if !(n >= 0) {
		k.refuse(path, "it is negative; 0 is no bound")
	}
}

func (k *checker) positive(path string, n int64) {
	if n <= 0 {
		k.refuse(path, "it is %d; it must be more than 0", n)
	}
}

func (k *checker) lasting(path string, d time.Duration) {
	if d <= 0 {
		k.refuse(path, "it is %v; it must be more than 0", d)
	}
}

// loopback reports whether an address is this machine's own alone.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

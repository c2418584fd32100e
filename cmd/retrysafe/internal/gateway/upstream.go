package gateway

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/certfile"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/http1"
	"github.com/retrysafe/retrysafe/internal/neverresend"
)

// upstream is the service behind the gateway, and the ways to it.
type upstream struct {
	url    *url.URL
	prefix bool // it has a path, which is put before each request's own
	// own is the way by HTTP/1.1, nil if there is none. An upstream by https is asked by a
	// transport which protocol it speaks, and http1 is its answer.
	own   *http1.Client
	http1 atomic.Bool
	// The transports speak HTTP/2, and carry WebSockets. Plain is for requests that may be
	// repeated by their nature: the transport itself does so when a kept-alive connection
	// turns out to be dead. Once is for all others.
	plain, once http.RoundTripper
	closeIdle   func() // closes idle connections
}

// exchanges reports whether requests go by the gateway's own exchange.
func (u *upstream) exchanges() bool {
	return u.own != nil && (u.url.Scheme == "http" || u.http1.Load())
}

const (
	keptConnections = 256
	dialTimeout     = 5 * time.Second
	idleTimeout     = 90 * time.Second
	// freshTimeout is how long a connection may be idle before a request is sent on it
	// that must not be sent twice. An upstream that closes idle connections does so
	// later, so the request does not meet its farewell on the way, which would leave
	// the outcome unknown.
	freshTimeout = time.Second
	// lostAfter is how many dial time-outs an HTTP/2 connection, on which nothing has come
	// for one, has to answer a ping. All requests share it, so that one that is dead and
	// does not say so would leave the outcome of each unknown, for as long as they come;
	// one whose upstream is only slow must not be given up.
	lostAfter = 3
	// continueTimeout is how long a request that asks for it waits for 100 Continue.
	continueTimeout = time.Second
	// maxResponseHead bounds the head of the upstream's answers.
	maxResponseHead = 1 << 20
)

// openUpstream prepares the ways to the upstream. It connects to nothing.
func (g *Gateway) openUpstream(c *config.Config, _ *Parts) error {
	u, err := url.Parse(c.Upstream)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("upstream: it is http:// or https://, a host, and perhaps a path")
	}
	secure, err := clientTLS(&c.UpstreamTLS, g.logger)
	if err != nil {
		return fmt.Errorf("upstream: %w", err)
	}
	within := cmp.Or(c.Server.DialTimeout, dialTimeout)
	kept := cmp.Or(c.Server.UpstreamConnections, keptConnections)
	dial := (&net.Dialer{Timeout: within}).DialContext
	transport := func(idle time.Duration) *http.Transport {
		return &http.Transport{
			DialContext: dial, ForceAttemptHTTP2: true,
			TLSClientConfig:     secure.Clone(), // net/http writes to it when it is first used
			HTTP2:               &http.HTTP2Config{SendPingTimeout: within, PingTimeout: lostAfter * within},
			TLSHandshakeTimeout: within,
			MaxIdleConns:        kept, MaxIdleConnsPerHost: kept, IdleConnTimeout: idle,
			ExpectContinueTimeout:  continueTimeout,
			DisableCompression:     true, // the client's own Accept-Encoding counts, and bytes stay as they are
			MaxResponseHeaderBytes: maxResponseHead,
		}
	}
	plain, once := transport(idleTimeout), transport(freshTimeout)
	g.upstream = &upstream{
		url: u, prefix: u.Path != "" && u.Path != "/",
		plain: plain, once: neverresend.Transport(once),
	}
	g.upstream.closeIdle = func() {
		plain.CloseIdleConnections()
		once.CloseIdleConnections()
		if own := g.upstream.own; own != nil {
			own.CloseIdle()
		}
	}
	if !http1.Supported || strings.ContainsFunc(u.Host, func(c rune) bool { return c > unicode.MaxASCII }) { // a transport encodes such a name
		return nil
	}
	o := http1.Options{
		Addr: addressOf(u), DialTimeout: within, MaxIdle: kept, IdleTimeout: idleTimeout, MaxHead: maxResponseHead, ContinueTimeout: continueTimeout,
	}
	if u.Scheme == "https" {
		o.TLS = secure
	}
	g.upstream.own = http1.New(&o)
	return nil
}

// addressOf returns host and port of an upstream.
func addressOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// clientTLS is how an https upstream is checked, and what it is shown.
func clientTLS(c *config.UpstreamTLS, logger *slog.Logger) (*tls.Config, error) {
	t := &tls.Config{ServerName: c.ServerName, MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, err
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", c.CAFile)
		}
	}
	if c.CertFile == "" && c.KeyFile == "" {
		return t, nil
	}
	pair, err := certfile.Load(c.CertFile, c.KeyFile, logger)
	if err != nil {
		return nil, err
	}
	t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.Current(), nil }
	return t, nil
}

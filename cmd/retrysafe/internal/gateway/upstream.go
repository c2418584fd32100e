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
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/certfile"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/internal/neverresend"
)

// upstream is the service behind the gateway, and the ways to it.
type upstream struct {
	url    *url.URL
	prefix bool // it has a path, which is put before each request's own
	// plain is for requests that may be repeated by their nature: the transport itself
	// does so when a kept-alive connection turns out to be dead. Once is for all
	// others.
	plain, once http.RoundTripper
	closeIdle   func() // closes idle connections
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
	dial := (&net.Dialer{Timeout: within}).DialContext
	transport := func(idle time.Duration) *http.Transport {
		kept := cmp.Or(c.Server.UpstreamConnections, keptConnections)
		return &http.Transport{
			DialContext: dial, ForceAttemptHTTP2: true,
			TLSClientConfig:     secure.Clone(), // net/http writes to it when it is first used
			HTTP2:               &http.HTTP2Config{SendPingTimeout: within, PingTimeout: lostAfter * within},
			TLSHandshakeTimeout: within,
			MaxIdleConns:        kept, MaxIdleConnsPerHost: kept, IdleConnTimeout: idle,
			ExpectContinueTimeout:  time.Second,
			DisableCompression:     true, // the client's own Accept-Encoding counts, and bytes stay as they are
			MaxResponseHeaderBytes: maxResponseHead,
		}
	}
	plain, once := transport(idleTimeout), transport(freshTimeout)
	g.upstream = &upstream{
		url: u, prefix: u.Path != "" && u.Path != "/",
		plain: plain, once: neverresend.Transport(once),
		closeIdle: func() {
			plain.CloseIdleConnections()
			once.CloseIdleConnections()
		},
	}
	return nil
}

// transportFor returns the way for requests of this method.
func (u *upstream) transportFor(method string) http.RoundTripper {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return u.plain
	default:
		return u.once
	}
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

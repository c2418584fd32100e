package gateway

import (
	"net"
	"net/http"
	"net/http/httputil"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/internal/headerkind"
)

// rewriteTarget addresses a request to the upstream: the same target, and X-Forwarded
// headers that describe the client instead of those that it sent.
func (g *Gateway) rewriteTarget(in, out *http.Request) {
	u := g.upstream
	if u.prefix {
		host := out.Host
		(&httputil.ProxyRequest{In: in, Out: out}).SetURL(u.url)
		out.Host = host
	} else {
		out.URL.Scheme, out.URL.Host = u.url.Scheme, u.url.Host
	}
	out.URL.RawQuery = in.URL.RawQuery // as it came: nothing here is decided by it
	if u.url.Scheme == "https" {
		out.Host = "" // the upstream's own
	}
	for name := range out.Header {
		if g.isAlias(name) {
			delete(out.Header, name)
		}
	}
	g.setForwarded(in, out.Header)
	if g.tenants.header != "" {
		g.forwardTenant(in, out.Header)
	}
	g.tracing.inject(out)
}

// isAlias reports whether a header becomes one that the gateway decides by, or that the
// upstream takes for the gateway's word, where underscores and hyphens are the same, as
// in CGI and WSGI.
func (g *Gateway) isAlias(name string) bool {
	return strings.IndexByte(name, '_') >= 0 && g.trustedHeaders[http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))]
}

// noteTrustedHeaders collects these headers, and those that removesProtected looks for.
func (g *Gateway) noteTrustedHeaders(*config.Config, *Parts) error {
	g.trustedHeaders = map[string]bool{"Content-Length": true, "Transfer-Encoding": true, "Content-Encoding": true}
	for _, names := range [][]string{forwardedHeaders[:], headerkind.Overrides(), g.tenants.names} {
		for _, name := range names {
			g.trustedHeaders[name] = true
		}
	}
	for _, rt := range g.table.order {
		for _, name := range [...]string{rt.keyHeader, rt.set.ForwardKey, rt.set.DeriveKey} {
			g.trustedHeaders[http.CanonicalHeaderKey(name)] = true
		}
	}
	g.noteProtected()
	return nil
}

// setForwarded sets the X-Forwarded headers.
func (g *Gateway) setForwarded(in *http.Request, out http.Header) {
	peer, _, err := net.SplitHostPort(in.RemoteAddr)
	if err != nil { // a request that is run later comes from nowhere
		for _, name := range forwardedHeaders {
			delete(out, name)
		}
		return
	}
	proto := "http"
	if in.TLS != nil {
		proto = "https"
	}
	values := []string{peer, in.Host, proto} // one allocation for the three
	for i, name := range forwardedHeaders {
		if said := in.Header[name]; len(said) > 0 && g.tenants.trusted.Include(in.RemoteAddr) {
			if i > 0 {
				out[name] = said
				continue
			}
			values[0] = joined(said, peer)
		}
		out[name] = values[i : i+1 : i+1]
	}
}

var forwardedHeaders = [...]string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// joined returns the lines of a list header and one element more.
func joined(lines []string, more string) string {
	list := ""
	for _, line := range lines {
		if line != "" {
			list += line + ", "
		}
	}
	return list + more
}

// forwardTenant passes on the header that names the tenant if it comes from a trusted
// proxy.
func (g *Gateway) forwardTenant(in *http.Request, out http.Header) {
	for _, name := range g.tenants.names {
		said, ok := in.Header[name]
		switch {
		case !ok:
		case in.RemoteAddr == "" || g.tenants.trusted.Include(in.RemoteAddr): // run later: it was checked when it came
			out[name] = said
		default:
			delete(out, name)
		}
	}
}

// replaceKey replaces the client's key by the one that the upstream gets.
func (a *upstreamCall) replaceKey(in, out http.Header) {
	s := &a.route.set
	clients := in[a.route.keyHeader]
	if len(clients) == 0 { // it was not stored with the request, because its name is that of a credential
		clients = []string{a.run.Ref().Key}
	}
	delete(out, a.route.keyHeader)
	switch {
	case s.ForwardKey != "":
		out[http.CanonicalHeaderKey(s.ForwardKey)] = clients[:1:1]
	case s.DeriveKey != "":
		out[http.CanonicalHeaderKey(s.DeriveKey)] = []string{a.run.DownstreamKey(config.UpstreamCall)}
	}
}

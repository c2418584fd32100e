// Package adminclient does over the admin API of a gateway what package operator does on a
// store. Errors are those of package operator, so that a command need not know which of the
// two it works on.
package adminclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/internal/neverresend"
	"github.com/retrysafe/retrysafe/operator"
)

// A Client is the admin API of one gateway, for the holder of one token.
type Client struct {
	base  string // without a slash at its end
	token string
	http  *http.Client
	inner *http.Transport
	me    adminwire.Person
}

// ErrAccess says that the gateway does not let the token in, or not do this.
var ErrAccess = errors.New("access denied")

var (
	errAddress = errors.New("it must be https://HOST:PORT, http://HOST:PORT or unix:/PATH")
	errNotAPI  = errors.New("this is not the admin API of a retrysafe gateway; give the address of admin.listen or admin.socket, not the one of clients")
)

// New returns a client for the API at an address: https://, http://, or unix: and the path
// of a socket. A path in the address is where the console is mounted; /api/v1 may be there.
func New(address, token string) (*Client, error) {
	c := &Client{token: token, inner: &http.Transport{TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute}}
	c.http = &http.Client{
		Transport: neverresend.Transport(c.inner),
		// A redirect would send the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if !strings.HasPrefix(path, "/") {
			return nil, errAddress
		}
		path = "/" + strings.TrimLeft(path, "/")
		c.base = "http://retrysafe"
		c.inner.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}
		return c, nil
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errAddress
	case u.User != nil:
		return nil, errors.New("a token does not belong into the address")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("it has a query or a fragment, which no address of a gateway has")
	}
	c.base = u.Scheme + "://" + u.Host + strings.TrimRight(strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), "/api/v1"), "/")
	return c, nil
}

// InClearText reports whether the token crosses a network that is not encrypted.
func (c *Client) InClearText() bool {
	u, err := url.Parse(c.base)
	if err != nil || u.Scheme != "http" || c.inner.DialContext != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback())
}

// Open asks for the holder of the token. Call it first.
func (c *Client) Open(ctx context.Context) error {
	if err := c.get(ctx, "/whoami", nil, &c.me); err != nil {
		return err
	}
	if c.me.Name == "" { // a service that answers every path with JSON would have no keys
		return errNotAPI
	}
	return nil
}

// Person returns the token's holder, by whose name the audit knows all actions.
func (c *Client) Person() adminwire.Person { return c.me }

// CloseConnections closes the connections to the gateway.
func (c *Client) CloseConnections() { c.inner.CloseIdleConnections() }

// inClearText is how the answer of a gateway to a request without TLS begins, where it has
// TLS.
const inClearText = "This is an HTTPS address"

const (
	readTimeout = 10 * time.Minute // a whole store may be read
	actTimeout  = 2 * time.Minute
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 512 << 20
)

func (c *Client) get(ctx context.Context, path string, q url.Values, to any) error {
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return c.call(ctx, http.MethodGet, path, nil, to)
}

// post sends an action. An error that is not one of a problem leaves open whether it was
// done.
func (c *Client) post(ctx context.Context, path string, body, to any) error {
	return c.postWithin(ctx, actTimeout, path, body, to)
}

func (c *Client) postWithin(ctx context.Context, limit time.Duration, path string, body, to any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.call(ctx, http.MethodPost, path, text, to)
}

func (c *Client) call(ctx context.Context, method, path string, body []byte, to any) error {
	r, err := http.NewRequestWithContext(ctx, method, c.base+"/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(r)
	if err != nil {
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err // without the URL, which has keys in it
		}
		return unanswered(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("the answer broke off: %w", err)
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case kind == "application/problem+json":
		var p struct {
			adminwire.Problem
			Type string `json:"type"`
		}
		if err := json.Unmarshal(text, &p); err != nil {
			return fmt.Errorf("status %d: the problem cannot be read: %w", res.StatusCode, err)
		}
		if p.Type != "" { // only problems for clients have one
			return fmt.Errorf("status %d: %w", res.StatusCode, errNotAPI)
		}
		if after, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && res.StatusCode == http.StatusTooManyRequests {
			p.Detail += fmt.Sprintf("; try again after %d s", after)
		}
		return problemError(&p.Problem)
	case res.StatusCode == http.StatusUnauthorized, res.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%w: status %d", ErrAccess, res.StatusCode)
	case res.StatusCode == http.StatusBadRequest && bytes.HasPrefix(text, []byte(inClearText)):
		return errors.New("it is an address with TLS: begin it with https://")
	case res.StatusCode/100 != 2 || kind != "application/json":
		return fmt.Errorf("status %d: %w", res.StatusCode, errNotAPI)
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	return nil
}

// unanswered explains why a request got no answer.
func unanswered(err error) error {
	untrusted, plain, advice := (*tls.CertificateVerificationError)(nil), tls.RecordHeaderError{}, ""
	switch {
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &plain):
		return errors.New("it is an address without TLS: begin it with http://, or give the gateway admin.tls")
	case errors.As(err, &untrusted):
		return fmt.Errorf("its certificate is not trusted here: %w; name the file of its authority in $SSL_CERT_FILE", untrusted.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		advice = "; nothing listens there: check that the gateway runs, and its admin.listen"
	case errors.Is(err, fs.ErrNotExist):
		advice = "; there is no socket: check that the gateway runs, and its admin.socket"
	case errors.Is(err, fs.ErrPermission):
		advice = "; only the user of the gateway may connect to its socket"
	}
	return fmt.Errorf("no answer: %w%s", err, advice)
}

// A problem is an error of the gateway with its own text.
type problem struct {
	text string
	is   error
}

func (e *problem) Error() string { return e.text }
func (e *problem) Unwrap() error { return e.is }

// problemError returns the error that package operator would have returned.
func problemError(p *adminwire.Problem) error {
	switch p.Code {
	case adminwire.CodeRefused:
		if p.Entry == nil {
			return &problem{p.Detail, operator.ErrStale}
		}
		e := *p.Entry
		e.Replayed = p.Replayed
		return &operator.RefusedError{Entry: e}
	case adminwire.CodeInvalid:
		return &problem{p.Detail, operator.ErrInvalid}
	case adminwire.CodeMismatch:
		return &problem{p.Detail, retrysafe.ErrMismatch}
	case adminwire.CodeNotFound:
		return &problem{p.Detail, retrysafe.ErrNotFound}
	case adminwire.CodeUnreadable:
		return &problem{p.Detail, retrysafe.ErrUnreadable}
	case adminwire.CodeUnsupported:
		return &problem{p.Detail, errors.ErrUnsupported}
	case adminwire.CodeUnavailable:
		return &problem{p.Detail, retrysafe.ErrUnavailable}
	}
	if p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden || p.Code == adminwire.CodeSlowed {
		return &problem{p.Detail, ErrAccess}
	}
	if p.Status/100 == 4 {
		return &problem{p.Detail, operator.ErrInvalid} // nothing was done
	}
	return errors.New(p.Detail)
}

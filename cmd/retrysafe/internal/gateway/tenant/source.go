package tenant

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
)

// A source is where an issuer's keys are read.
type source struct {
	where string // for the log
	every time.Duration
	read  func(context.Context) ([]byte, error)
}

// How often keys are read again. Those of a file cost nothing.
const (
	everyURL  = 5 * time.Minute
	everyFile = 10 * time.Second
)

// newSource returns the source that text names: an https URL, an http one of this
// machine, or a file. The source has to be trusted: its keys decide which tokens are
// valid.
func newSource(text string, transport http.RoundTripper) (*source, error) {
	if !strings.Contains(text, "://") {
		return &source{text, everyFile, fileReader(text)}, nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is not a URL")
	case u.User != nil:
		return nil, errors.New("it has a user or password; keys are public, so none is needed")
	case u.Scheme == "file" && u.Host == "" && u.Path != "":
		return &source{u.Path, everyFile, fileReader(u.Path)}, nil
	case u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname())):
		where := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path} // a query may hold what no log should
		return &source{where.String(), everyURL, urlReader(u.String(), transport)}, nil
	case u.Scheme == "http":
		return nil, errors.New("over plain http anybody on the way could put in keys: use https")
	default:
		return nil, errors.New("it must be an https URL, an http one of this machine, or a file")
	}
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

// maxKeySet bounds a key set, in bytes.
const maxKeySet = 1 << 20

// urlReader returns a function that gets a URL. It does not follow redirects, which
// could lead anywhere, and keeps no connection.
func urlReader(address string, transport http.RoundTripper) func(context.Context) ([]byte, error) {
	if transport == nil {
		transport = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	}
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context) ([]byte, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, errors.New("it is not a URL")
		}
		request.Header.Set("Accept", "application/jwk-set+json, application/json")
		response, err := client.Do(request)
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // without the URL
		}
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("it answers with status %d", response.StatusCode)
		}
		return readBounded(response.Body)
	}
}

func fileReader(name string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() { // to open a pipe could take for ever
			return nil, errors.New("it is not a file")
		}
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return readBounded(file)
	}
}

func readBounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxKeySet+1))
	if err == nil && len(text) > maxKeySet {
		err = fmt.Errorf("it has more than %d bytes", maxKeySet)
	}
	return text, err
}

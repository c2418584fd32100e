package sweep

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// An order is one call of the provider.
type order struct {
	// For is the case that it belongs to.
	For string
	// Key is what the provider recognises a second call by. Without it each call is
	// an effect of its own.
	Key     string
	Request string
}

// A provider does what orders say.
type provider interface {
	// charge returns the provider's name for the effect.
	charge(ctx context.Context, o order) (id string, err error)
	// find returns the name of an effect of a case, or nothing.
	find(ctx context.Context, of string) (id string, err error)
}

// A ledger is a provider that remembers everything.
type ledger struct {
	mu    sync.Mutex
	last  int
	cases map[string]*entries
}

// entries are the effects of one case.
type entries struct {
	ids    []string          // one for each effect
	keyed  map[string]string // key → id
	bodies map[string]string // key → what it was first called with
	calls  int
	differ bool // one key, two requests
}

func newLedger() *ledger { return &ledger{cases: map[string]*entries{}} }

func (l *ledger) charge(_ context.Context, o order) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.cases[o.For]
	if e == nil {
		e = &entries{keyed: map[string]string{}, bodies: map[string]string{}}
		l.cases[o.For] = e
	}
	e.calls++
	if id, known := e.keyed[o.Key]; known && o.Key != "" {
		e.differ = e.differ || e.bodies[o.Key] != o.Request
		return id, nil
	}
	l.last++
	id := fmt.Sprintf("ch_%d", l.last)
	e.ids = append(e.ids, id)
	e.keyed[o.Key], e.bodies[o.Key] = id, o.Request
	return id, nil
}

func (l *ledger) find(_ context.Context, of string) (string, error) {
	e := l.of(of)
	if len(e.ids) == 0 {
		return "", nil
	}
	return e.ids[0], nil
}

// of returns what the provider knows of a case.
func (l *ledger) of(name string) entries {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.cases[name]; e != nil {
		return *e
	}
	return entries{}
}

// counter is where a ledger is open to other processes.
type counter struct {
	URL    string
	server http.Server
}

func (l *ledger) open() (*counter, error) {
	at, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a provider: %w", err)
	}
	c := &counter{URL: "http://" + at.Addr().String()}
	c.server.Handler, c.server.ReadHeaderTimeout = l, 10*time.Second
	go func() { _ = c.server.Serve(at) }() // it ends with close
	return c, nil
}

func (c *counter) close() error { return c.server.Close() }

// ServeHTTP implements [http.Handler].
func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var id string
	var err error
	if r.Method == http.MethodGet {
		id, err = l.find(r.Context(), r.URL.Query().Get("for"))
	} else {
		var o order
		if err = json.NewDecoder(r.Body).Decode(&o); err == nil {
			id, err = l.charge(r.Context(), o)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, id) // a caller that has gone asks again
}

// remote is a provider in another process. It makes a connection for each call, so
// that none is made twice behind its back.
type remote struct{ url string }

func (p remote) charge(ctx context.Context, o order) (string, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	return p.call(ctx, http.MethodPost, p.url, string(body))
}

func (p remote) find(ctx context.Context, of string) (string, error) {
	return p.call(ctx, http.MethodGet, p.url+"?for="+url.QueryEscape(of), "")
}

func (p remote) call(ctx context.Context, method, to, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, to, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Close = true
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }() // it was read whole
	id, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("the provider says %s: %s", res.Status, id)
	}
	return string(id), err
}

package e2e_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

var (
	attackRun   = flag.Bool("attack", false, "measure honest tenants beside a hostile one; takes some minutes on a quiet machine")
	attackLasts = flag.Duration("attack.lasts", time.Minute, "how long each of the two runs lasts")
	attackConns = flag.Int("attack.connections", 2000, "how many connections the hostile tenant has")
)

const (
	honestTenants = 10
	honestPause   = 20 * time.Millisecond // 50 requests a second of each
	attackMemory  = 128 << 20             // as in a container of 512 MiB
)

// TestAttack measures ten honest tenants at 50 requests a second each, alone and beside a
// hostile tenant that does all that it can with many connections: no honest request is
// lost, their p99 stays within three times that of the quiet run, and the gateway stays
// within its memory.
func TestAttack(t *testing.T) {
	if !*attackRun {
		t.Skip("a measurement, not a test: run with -attack")
	}
	lasts, connections := *attackLasts, *attackConns
	service := httptest.NewServer(http.HandlerFunc(attacked))
	t.Cleanup(service.Close)
	g := newGateway(t, fmt.Sprintf("upstream: %s\nstore: %q\ntenant: { from: bearer, trusted_proxies: [127.0.0.1/32] }\n"+
		"defaults: { in_flight: wait, wait: 10s }\nserver: { max_memory: %d, max_connections: %d }\n",
		service.URL, testservers.Shared(t), attackMemory, connections)+certificate(t))

	quiet := honestLoad(t, g, "quiet", lasts)
	ctx, stop := context.WithCancel(t.Context())
	h := &hostile{g: g, ctx: ctx}
	h.attack(connections)
	eventually(t, "the attack is under way", func() bool { return h.sent.Load() >= int64(connections/3) })
	memory := make(chan int64, 1)
	go func() { memory <- mostMemory(ctx, t, g) }()
	beside := honestLoad(t, g, "beside", lasts)
	stop()
	h.all.Wait()
	most := <-memory

	t.Logf("quiet:  %v", quiet)
	t.Logf("beside: %v; the hostile tenant sent %d requests on up to %d connections", beside, h.sent.Load(), connections)
	t.Logf("memory: at most %d MiB, of which bodies and answers may have %d MiB", most>>20, attackMemory>>20)
	if quiet.lost+beside.lost > 0 {
		t.Errorf("honest requests were lost: %d without and %d beside the attack: %v", quiet.lost, beside.lost, beside.reasons)
	}
	if limit := 3 * quiet.p99; beside.p99 > limit {
		t.Errorf("the p99 of honest requests is %v beside the attack, want at most three times %v", beside.p99, quiet.p99)
	}
	if most > 4*attackMemory {
		t.Errorf("the gateway had %d MiB, want at most the %d MiB that this budget is meant for", most>>20, 4*attackMemory>>20)
	}
}

// attacked is a service with what a hostile tenant likes: large answers and slow ones.
func attacked(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	switch r.URL.Path {
	case "/large":
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write(make([]byte, 1_000_000))
		return
	case "/slow":
		select {
		case <-time.After(5 * time.Second):
		case <-r.Context().Done():
		}
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"id":"pay_1"}`)
}

// A load is how honest requests fared.
type load struct {
	requests, lost int
	p50, p99       time.Duration
	reasons        map[string]int // of requests that were lost
}

func (l load) String() string {
	return fmt.Sprintf("%d requests, %d lost, p50 %v, p99 %v", l.requests, l.lost, l.p50.Round(time.Microsecond), l.p99.Round(time.Microsecond))
}

// honestLoad sends the requests of the honest tenants, each at its time, whether those
// before it were answered or not, on up to eight connections of each tenant.
func honestLoad(t *testing.T, g *gateway, name string, lasts time.Duration) load {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	l := load{reasons: make(map[string]int)}
	var all sync.WaitGroup
	for tenant := range honestTenants {
		all.Go(func() {
			client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: anyCertificate.Clone(), MaxConnsPerHost: 8, MaxIdleConnsPerHost: 8}}
			defer client.CloseIdleConnections()
			var own sync.WaitGroup
			defer own.Wait()
			tick := time.NewTicker(honestPause)
			defer tick.Stop()
			for n := range int(lasts / honestPause) {
				<-tick.C
				own.Go(func() {
					began := time.Now()
					status, text, err := send1(t.Context(), client, g.url+"/payments", fmt.Sprintf("honest-%d", tenant), fmt.Sprintf("an-honest-key-%s-%d-%d", name, tenant, n))
					d := time.Since(began)
					mu.Lock()
					defer mu.Unlock()
					took = append(took, d)
					if err != nil || status != http.StatusCreated {
						l.lost++
						l.reasons[fmt.Sprintf("%d %.300s %v", status, text, err)]++
					}
				})
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	l.requests, l.p50, l.p99 = len(took), took[len(took)/2], took[len(took)*99/100]
	return l
}

func send1(ctx context.Context, client *http.Client, url, token, key string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"amount":1200,"currency":"EUR"}`))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", "application/json")
	res, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// mostMemory returns the largest resident size of the gateway until ctx ends.
func mostMemory(ctx context.Context, t *testing.T, g *gateway) (most int64) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			most = max(most, rss(t, g.pid()))
		case <-ctx.Done():
			return most
		}
	}
}

// hostile is one tenant with many connections. One that is closed is made anew, but not in
// haste: the attack is on the gateway's limits, not on the processors that it shares with
// the measurement.
type hostile struct {
	g    *gateway
	ctx  context.Context
	all  sync.WaitGroup
	sent atomic.Int64
}

const hostilePause = 10 * time.Second

// hostileDialer connects from an address of its own. The honest tenants come through a
// trusted proxy.
var hostileDialer = &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}

// attack starts one goroutine for each connection.
func (h *hostile) attack(connections int) {
	kinds := []func(n int){h.announced, h.slow, h.large, h.waiting, h.idle, h.streams}
	for n := range connections {
		h.all.Go(func() {
			for h.ctx.Err() == nil {
				kinds[n%len(kinds)](n)
				select {
				case <-time.After(hostilePause):
				case <-h.ctx.Done():
				}
			}
		})
	}
}

func (h *hostile) head(path, key string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer hostile\r\nIdempotency-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, key, length)
}

// exchange sends text on a connection of its own, then more, and reads the answer slowly.
func (h *hostile) exchange(text string, more func(io.Writer)) {
	c, err := (&tls.Dialer{NetDialer: hostileDialer, Config: anyCertificate}).DialContext(h.ctx, "tcp", h.g.addr)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(h.ctx, func() { c.Close() })()
	if _, err := io.WriteString(c, text); err != nil {
		return
	}
	h.sent.Add(1)
	if more != nil {
		more(c)
	}
	in := bufio.NewReaderSize(c, 512)
	buf := make([]byte, 512)
	for {
		if _, err := in.Read(buf); err != nil {
			return
		}
		h.pause(50 * time.Millisecond)
	}
}

func (h *hostile) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-h.ctx.Done():
	}
}

func (h *hostile) key() string { return "a-hostile-key-" + strconv.FormatInt(h.sent.Load(), 10) }

func (h *hostile) announced(n int) {
	h.exchange(h.head("/payments", fmt.Sprint(h.key(), n), 1_000_000)+"{", nil)
}

func (h *hostile) slow(n int) {
	h.exchange(h.head("/payments", fmt.Sprint(h.key(), n), 1_000_000)+`{"text":"`+strings.Repeat("x", 100_000), func(w io.Writer) {
		for h.ctx.Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 500)); err != nil {
				return
			}
			h.pause(200 * time.Millisecond)
		}
	})
}

func (h *hostile) large(n int) {
	h.exchange(h.head("/large", fmt.Sprint(h.key(), n), 2)+"{}", nil)
}

func (h *hostile) waiting(int) {
	h.exchange(h.head("/slow", "one-key-that-all-wait-for-"+strconv.FormatInt(time.Now().Unix()/10, 10), 2)+"{}", nil)
}

func (h *hostile) idle(int) {
	h.exchange("GET /.retrysafe/livez HTTP/1.1\r\nHost: h\r\n\r\n", nil)
}

// streams opens many streams with announced bodies on one connection of HTTP/2.
func (h *hostile) streams(n int) {
	transport := &http.Transport{DialContext: hostileDialer.DialContext, TLSClientConfig: anyCertificate.Clone(), ForceAttemptHTTP2: true, MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			body, hold := io.Pipe()
			defer context.AfterFunc(h.ctx, func() { hold.Close() })()
			go func() { _, _ = hold.Write([]byte("{")) }()
			r, _ := http.NewRequestWithContext(h.ctx, http.MethodPost, h.g.url+"/payments", body)
			r.ContentLength = 1_000_000
			r.Header.Set("Authorization", "Bearer hostile")
			r.Header.Set("Idempotency-Key", fmt.Sprintf("%s-of-stream-%d-%d", h.key(), n, i))
			if res, err := transport.RoundTrip(r); err == nil {
				res.Body.Close()
			}
			hold.Close()
			h.sent.Add(1)
		})
	}
	all.Wait()
}

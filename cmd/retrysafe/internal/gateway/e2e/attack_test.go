package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

var (
	attackRun   = flag.Bool("attack", false, "measure honest tenants beside a hostile one; takes some minutes on a quiet machine")
	attackLasts = flag.Duration("attack.lasts", time.Minute, "how long each of the two runs lasts")
	attackConns = flag.Int("attack.connections", 2000, "how many connections the hostile tenant has")
	attackKinds = flag.String("attack.kinds", "announced,slow,large,waiting,idle,streams", "what the connections do")
	attackOther = flag.Bool("attack.elsewhere", false, "measure also beside the same attack on another gateway with a service and a server of its own, which shares nothing but the processors")
	attackTrace = flag.Bool("attack.trace", false, "print the slowest honest request of each quarter of a second")
)

const (
	honestTenants = 10
	honestPause   = 20 * time.Millisecond // 50 requests a second of each
	attackMemory  = 128 << 20             // as in a container of 512 MiB
	hostileGone   = 10 * time.Second      // in which the gateway ends what the attack left: /slow takes five
)

// TestAttack measures ten honest tenants at 50 requests a second each, alone and beside a
// hostile tenant that does all that it can with many connections: no honest request is
// lost, their p99 stays within three times that of the quiet run, and the gateway stays
// within its memory. Half of the quiet run comes before the attack and half after it: the
// speed of a machine changes within minutes, and so both runs have the same share of it.
func TestAttack(t *testing.T) {
	if !*attackRun {
		t.Skip("a measurement, not a test: run with -attack")
	}
	lasts, connections := *attackLasts, *attackConns
	g := newAttacked(t, testservers.Shared(t), connections)

	before := honestLoad(t, g, "before", lasts/2)
	var elsewhere load
	if *attackOther {
		other := newAttacked(t, testservers.NewPostgres(t, nil).URL("postgres"), connections)
		a := startAttack(t, other, connections)
		elsewhere = honestLoad(t, g, "elsewhere", lasts)
		a.stop()
		other.kill()
	}
	a := startAttack(t, g, connections)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	memory := make(chan int64, 1)
	go func() { memory <- mostMemory(ctx, t, g) }()
	beside := honestLoad(t, g, "beside", lasts)
	stop()
	most := <-memory
	a.stop()
	time.Sleep(hostileGone)
	after := honestLoad(t, g, "after", lasts/2)
	quiet := before.and(after)

	t.Logf("before: %v", before)
	t.Logf("after:  %v", after)
	t.Logf("quiet:  %v (before and after)", quiet)
	if *attackOther {
		t.Logf("beside the same attack on another gateway, service and server of this machine: %v", elsewhere)
	}
	t.Logf("beside: %v; the hostile tenant sent %d requests on up to %d connections", beside, a.sent.Load(), connections)
	t.Logf("memory: at most %d MiB, of which bodies and answers may have %d MiB", most>>20, attackMemory>>20)
	if quiet.lost+beside.lost > 0 {
		t.Errorf("honest requests were lost: %d without and %d beside the attack: %v %v", quiet.lost, beside.lost, quiet.reasons, beside.reasons)
	}
	if limit := 3 * quiet.p99; beside.p99 > limit {
		t.Errorf("the p99 of honest requests is %v beside the attack, want at most three times %v", beside.p99, quiet.p99)
	}
	if most > 4*attackMemory {
		t.Errorf("the gateway had %d MiB, want at most the %d MiB that this budget is meant for", most>>20, 4*attackMemory>>20)
	}
}

// newAttacked starts a gateway with a service of its own over a store.
func newAttacked(t *testing.T, store string, connections int) *gateway {
	t.Helper()
	return newGateway(t, fmt.Sprintf("upstream: %s\nstore: %q\ntenant: { from: bearer, trusted_proxies: [127.0.0.1/32] }\n"+
		"defaults: { in_flight: wait, wait: 10s }\nserver: { max_memory: %d, max_connections: %d }\n",
		startAttacked(t), store, attackMemory, connections)+certificate(t))
}

// A load is how honest requests fared.
type load struct {
	took     []time.Duration // of each request, in ascending order
	lost     int
	p50, p99 time.Duration
	reasons  map[string]int // of requests that were lost
	stolen   time.Duration  // for which processors of this machine worked for others of its host
}

func newLoad(took []time.Duration, lost int, reasons map[string]int) load {
	slices.Sort(took)
	return load{took: took, lost: lost, p50: took[len(took)/2], p99: took[len(took)*99/100], reasons: reasons}
}

// and returns the load of both.
func (l load) and(other load) load {
	reasons := maps.Clone(l.reasons)
	for reason, n := range other.reasons {
		reasons[reason] += n
	}
	both := newLoad(slices.Concat(l.took, other.took), l.lost+other.lost, reasons)
	both.stolen = l.stolen + other.stolen
	return both
}

func (l load) String() string {
	return fmt.Sprintf("%d requests, %d lost, p50 %v, p99 %v, while the host took %v of the processors' time", len(l.took), l.lost, l.p50.Round(time.Microsecond), l.p99.Round(time.Microsecond), l.stolen)
}

// stolen returns for how long processors of this machine have worked for others of its host.
func stolen(t *testing.T) time.Duration {
	t.Helper()
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	var name string
	var times [8]int64 // in hundredths of a second
	if _, err := fmt.Sscan(string(stat), &name, &times[0], &times[1], &times[2], &times[3], &times[4], &times[5], &times[6], &times[7]); err != nil {
		t.Fatalf("%.80s: %v", stat, err)
	}
	return time.Duration(times[7]) * 10 * time.Millisecond
}

// honestLoad sends the requests of the honest tenants, each at its time, whether those
// before it were answered or not, on up to eight connections of each tenant.
func honestLoad(t *testing.T, g *gateway, name string, lasts time.Duration) load {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	start, worst := time.Now(), make([]time.Duration, 4*int(lasts/time.Second)+240)
	lost, reasons, before := 0, make(map[string]int), stolen(t)
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
					if at := int(began.Sub(start) / (time.Second / 4)); at < len(worst) {
						worst[at] = max(worst[at], d)
					}
					if err != nil || status != http.StatusCreated {
						lost++
						reasons[fmt.Sprintf("%d %.300s %v", status, text, err)]++
					}
				})
			}
		})
	}
	all.Wait()
	if *attackTrace {
		t.Logf("%s, slowest of each quarter of a second: %v", name, worst[:4*int(lasts/time.Second)])
	}
	l := newLoad(took, lost, reasons)
	l.stolen = stolen(t) - before
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

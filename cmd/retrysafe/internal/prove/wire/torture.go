package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

// tortureConf is the configuration of a gateway with a route of each kind. A slow
// sender is cut off soon.
const tortureConf = `upstream: %s
server: { drain: %s, read_header: 2s, read_body: 2s }
routes:
  - { match: "POST /keyed/{rest...}", effects: keyed, derive_key: Idempotency-Key, lapse: rerun }
  - { match: "POST /decoded/{rest...}", decode: true }
  - { match: "POST /optional/{rest...}", required: false }
  - { match: "POST /passed/{rest...}", off: true }
`

const (
	// tormentors is how many send at once.
	tormentors = 8
	// wellEvery is after how many attacks a good request must be served.
	wellEvery = 500
	// secondShare is how many of ten attacks are of HTTP/2.
	secondShare = 2
	// mostMemory bounds the memory of a gateway, at its peak.
	mostMemory = 256 << 20
	// mostLeft is how many goroutines more than before may be left: some come and go.
	mostLeft = 5
)

// torture sends hostile and malformed requests, in clear text and by HTTP/2.
func torture(ctx context.Context, env *prove.Env, r *prove.Result) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	cert, err := certify(env.Dir)
	if err != nil {
		return err
	}
	w, err := testify(ctx, r, env.Seed)
	if err != nil {
		return err
	}
	defer w.close()
	conf := fmt.Sprintf(tortureConf, w.url, drain)
	plain, err := newVictim(ctx, env, "torture1", conf, &http.Transport{})
	if err != nil {
		return err
	}
	secure, err := newVictim(ctx, env, "torture2", conf+fmt.Sprintf("tls: { cert_file: %q, key_file: %q }\n", cert.certFile, cert.keyFile),
		&http.Transport{TLSClientConfig: cert.client("h2"), ForceAttemptHTTP2: true})
	if err != nil {
		return errors.Join(err, plain.stop())
	}
	t := &tormentor{addr: plain.host(), witness: w, result: r, seed: env.Seed}
	victims := []*victim{plain, secure}
	for _, v := range victims {
		if err := v.settle(ctx, t, -1); err != nil {
			return err
		}
	}
	if err := t.torment(ctx, env, victims, func(ctx context.Context, n int) error {
		if n%10 < secondShare {
			return t.strike2(ctx, secure.host(), cert.client("h2"), n)
		}
		return t.strike(ctx, n)
	}); err != nil {
		for _, v := range victims {
			err = errors.Join(err, v.autopsy(r, env.Seed))
		}
		return err
	}
	for _, v := range victims {
		if err := v.examine(ctx, t); err != nil {
			return err
		}
		if ended := v.stop(); ended != nil {
			r.Violatef("G11", "", "%v", ended)
		}
		if err := v.autopsy(r, env.Seed); err != nil {
			return err
		}
	}
	r.Count("requests passed on", w.total())
	return nil
}

// torment strikes as often as env says, and sees to it that the victims are well in
// between.
func (t *tormentor) torment(ctx context.Context, env *prove.Env, victims []*victim, strike func(ctx context.Context, n int) error) error {
	all := env.Times()
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, tormentors)
	for i := range errs {
		wg.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				n := int(next.Add(1)) - 1
				if n >= all {
					return
				}
				if errs[i] = strike(ctx, n); errs[i] == nil && n%wellEvery == wellEvery-1 {
					for _, v := range victims {
						errs[i] = errors.Join(errs[i], v.isWell(ctx, t, n))
					}
				}
				t.result.Count("attacks", 1)
				env.Step(n+1, all)
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// A victim is a gateway under attack.
type victim struct {
	*gateway
	client *http.Client
	before float64 // goroutines while it is idle
}

func newVictim(ctx context.Context, env *prove.Env, name, conf string, transport *http.Transport) (*victim, error) {
	g, err := start(ctx, env, name, conf)
	if err != nil {
		return nil, err
	}
	transport.DisableKeepAlives = true // a kept connection would be goroutines of its own
	return &victim{gateway: g, client: &http.Client{Transport: transport}}, nil
}

// isWell reports as a violation that the victim does not serve a good request. As
// clients do, it sends it more than once where that may help.
func (v *victim) isWell(ctx context.Context, t *tormentor, n int) error {
	base, err := url.Parse(v.url)
	if err != nil {
		return err
	}
	end := time.Now().Add(answerWithin)
	again, err := t.isWell(ctx, v.client, v.url, base.Port(), n)
	for again && ctx.Err() == nil && time.Now().Before(end) {
		pause(ctx, 50*time.Millisecond)
		again, err = t.isWell(ctx, v.client, v.url, base.Port(), n)
	}
	if err != nil && ctx.Err() == nil {
		t.result.Violate(prove.Violation{Invariant: "G11", What: err.Error(), Seed: t.seed})
	}
	return nil
}

// goroutines counts those of an idle victim.
func (v *victim) goroutines(ctx context.Context, w *witness) (float64, error) {
	w.hangUp() // connections that it keeps have goroutines
	m, err := v.metrics(ctx)
	return m["go_goroutines"], err
}

// settle notes how many goroutines a victim has that has served a request.
func (v *victim) settle(ctx context.Context, t *tormentor, n int) error {
	if err := v.isWell(ctx, t, n); err != nil {
		return err
	}
	for range 20 { // those of the request go
		now, err := v.goroutines(ctx, t.witness)
		if err != nil {
			return err
		}
		if now == v.before {
			return nil
		}
		v.before = now
		pause(ctx, 20*time.Millisecond)
	}
	return nil
}

// examine sees what the attacks have left behind in a victim: it must be well, and
// have let go of everything.
func (v *victim) examine(ctx context.Context, t *tormentor) error {
	if err := v.isWell(ctx, t, -2); err != nil {
		return err
	}
	var now float64
	for end := time.Now().Add(answerWithin); ; pause(ctx, 50*time.Millisecond) {
		var err error
		if now, err = v.goroutines(ctx, t.witness); err != nil {
			return err
		}
		if now <= v.before+mostLeft {
			break
		}
		if time.Now().After(end) {
			t.result.Violate(prove.Violation{Invariant: "S13", What: fmt.Sprintf("%.0f goroutines before the attacks, %.0f after them", v.before, now), Seed: t.seed})
			break
		}
	}
	t.result.Measure("goroutines more than before", max(t.result.Figure("goroutines more than before"), now-v.before), "")
	peak, err := peakMemory(v.process.OS().Pid)
	if errors.Is(err, os.ErrNotExist) {
		return nil // this system does not say
	}
	if peak >= mostMemory {
		t.result.Violate(prove.Violation{Invariant: "S13", What: fmt.Sprintf("the gateway had %d MiB of memory", peak>>20), Seed: t.seed})
	}
	t.result.Measure("memory", max(t.result.Figure("memory"), float64(peak>>20)), "MiB")
	return err
}

// autopsy looks for panics in what a victim has said.
func (v *victim) autopsy(r *prove.Result, seed uint64) error {
	if said := v.log.alarmed(); said != "" {
		r.Violate(prove.Violation{Invariant: "G11", What: "the gateway said " + said, Seed: seed})
	}
	return nil
}

// peakMemory is how much memory a process has had at most.
func peakMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	words := strings.Fields(rest)
	if len(words) == 0 {
		return 0, errors.New("the system does not say how much memory the gateway has")
	}
	kb, err := strconv.ParseInt(words[0], 10, 64)
	return kb << 10, err
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

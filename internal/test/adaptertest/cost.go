package adaptertest

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// What an adapter adds to its framework, beside what the guard adds to net/http: the same
// small payment through the framework's own entry point, without a network, under a new
// key each time and as a retry of one key.

// The bodies of the request and of its answer.
const (
	Payment = `{"amount": 1200, "currency": "EUR", "account_id": 1}`
	Receipt = `{"id":"pay_0001","amount":1200,"currency":"EUR","account_id":1,"status":"created"}`
)

const (
	costPath = "/payments"
	// perStore is how many keys one store gets before the next begins, so that its growth
	// is not measured.
	perStore = 20_000
)

var ratios = flag.Bool("ratios", false, "measure what the adapter adds, beside what the guard adds to net/http")

// A Build returns a function that serves POST /payments under a key, with the body
// [Payment], by a handler that sends [Receipt] as 201 with a Location. The function panics
// if it gets another status. Without an engine there is no guard.
type Build func(e *retrysafe.Engine) func(key string)

// A costCase is one kind of traffic.
type costCase struct {
	name            string
	guarded, replay bool
}

var costCases = []costCase{{"bare", false, false}, {"fresh", true, false}, {"replay", true, true}}

// Bench runs the benchmarks of an adapter, for profiles. Cost compares.
func Bench(b *testing.B, build Build) {
	b.Helper()
	for _, c := range costCases {
		b.Run(c.name, c.bench(build))
	}
}

// Cost prints what the adapter adds to its framework, what the guard adds to net/http, and
// the ratio of both. Both are measured in turn in one run; a figure is the median of its
// turns. It asserts nothing: a machine that does other work gives other figures.
func Cost(t *testing.T, framework string, build Build) {
	t.Helper()
	if !*ratios {
		t.Skip("a measurement, not a test: run with -ratios")
	}
	const rounds = 9
	ns, allocs := map[string][]float64{}, map[string]int64{}
	for range rounds {
		for _, c := range costCases {
			for name, build := range map[string]Build{"net/http": netHTTP, framework: build} {
				res := testing.Benchmark(c.bench(build))
				ns[name+c.name] = append(ns[name+c.name], res.Extra[cpuMetric])
				allocs[name+c.name] = res.AllocsPerOp()
			}
		}
	}
	median := func(name string) float64 {
		slices.Sort(ns[name])
		return ns[name][rounds/2]
	}
	fmt.Fprintf(t.Output(), "| | net/http ns | allocs | %s ns | allocs | the guard adds | the adapter adds | ratio |\n|---|---|---|---|---|---|---|---|\n", framework)
	for _, c := range costCases {
		plain, adapted := median("net/http"+c.name), median(framework+c.name)
		fmt.Fprintf(t.Output(), "| %s | %.0f | %d | %.0f | %d |", c.name, plain, allocs["net/http"+c.name], adapted, allocs[framework+c.name])
		if c.guarded {
			plain, adapted = plain-median("net/httpbare"), adapted-median(framework+"bare")
			fmt.Fprintf(t.Output(), " %.0f | %.0f | **%.2f** |\n", plain, adapted, adapted/plain)
		} else {
			fmt.Fprintln(t.Output(), " | | |")
		}
	}
}

// cpuMetric is the processor time of an operation with what it causes in the garbage
// collector. Other work on the machine disturbs it less than wall time.
const cpuMetric = "cpu-ns/op"

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it fails for wrong arguments only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (c costCase) bench(build Build) func(b *testing.B) {
	return func(b *testing.B) {
		serve := build(c.engine(b))
		k := []byte("8e03978e-40d5-43dd-bc93-000000000000")
		serve(string(k))
		b.ReportAllocs()
		b.ResetTimer()
		paused, start := time.Duration(0), cpuTime()
		for i := range b.N {
			if i%perStore == perStore-1 && c.guarded && !c.replay {
				b.StopTimer()
				pause := cpuTime()
				serve = build(c.engine(b))
				paused += cpuTime() - pause
				b.StartTimer()
			}
			if !c.replay {
				for n, at := i+1, len(k)-1; n > 0; n, at = n/10, at-1 {
					k[at] = '0' + byte(n%10)
				}
			}
			serve(string(k))
		}
		b.ReportMetric(float64(cpuTime()-start-paused)/float64(b.N), cpuMetric)
	}
}

func (c costCase) engine(b *testing.B) *retrysafe.Engine {
	if !c.guarded {
		return nil
	}
	e, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// netHTTP is the guard on net/http itself.
func netHTTP(e *retrysafe.Engine) func(string) {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/payments/pay_0001")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, Receipt)
	})
	if e != nil {
		g, err := httpkey.New(e, func(*http.Request) (string, error) { return "tenant", nil }, nil)
		if err != nil {
			panic(err) //nolint:forbidigo // a benchmark has no other way out here
		}
		h = g.Handler(h)
	}
	mux := http.NewServeMux()
	mux.Handle("POST "+costPath, h)
	return Drive(mux)
}

// Drive returns a function that serves the payment by a handler of net/http.
func Drive(h http.Handler) func(key string) {
	var body strings.Reader
	w := sink{header: make(http.Header)}
	r := http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: costPath}, RequestURI: costPath, Host: "localhost", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(&body), ContentLength: int64(len(Payment)),
		Header: http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {""}},
	}
	return func(key string) {
		body.Reset(Payment)
		r.Header["Idempotency-Key"][0] = key
		clear(w.header)
		w.status = 0
		h.ServeHTTP(&w, &r)
		if w.status != http.StatusCreated {
			panic(fmt.Sprintf("status %d", w.status)) //nolint:forbidigo // a benchmark has no other way out here
		}
	}
}

// sink is a response of which only the status is kept.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header               { return s.header }
func (s *sink) Write(p []byte) (int, error)       { return len(p), nil }
func (s *sink) WriteString(p string) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(status int)            { s.status = status }

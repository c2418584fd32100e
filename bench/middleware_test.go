package bench_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/valyala/fasthttp"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// What a middleware adds to a bare handler: the same small payment, as a new key
// each time and as a retry of one key, through the framework's own entry point
// without a network. Both middlewares in their default configuration: ours with
// its engine, heartbeat, fingerprint and memstore; Fiber's with its in-process
// lock and storage, and no fingerprint. Only the differences to each framework's
// own bare handler are compared.

const (
	payment = `{"amount": 1200, "currency": "EUR", "account_id": 1}`
	receipt = `{"id":"pay_0001","amount":1200,"currency":"EUR","account_id":1,"status":"created"}`
	// perStore is how many keys one store takes before the next begins, so that
	// neither side is measured by how it grows.
	perStore = 20_000
)

// A rig serves one request under a key.
type rig interface {
	// renew starts over with an empty store.
	renew()
	serve(key string)
}

type traffic struct {
	name string
	rig  func(guarded bool) rig
}

var traffics = []traffic{
	{"ours", func(guarded bool) rig { return newHTTPRig(guarded) }},
	{"fiber", func(guarded bool) rig { return newFiberRig(guarded) }},
}

func (tr traffic) bench(guarded, replay bool) func(b *testing.B) {
	return func(b *testing.B) {
		r := tr.rig(guarded)
		r.renew()
		r.serve(string(firstKey()))
		b.ReportAllocs()
		b.ResetTimer()
		took := serveMany(r, b.N, replay, func(renew func()) {
			b.StopTimer()
			renew()
			b.StartTimer()
		})
		b.ReportMetric(float64(took)/float64(b.N), cpuMetric)
	}
}

func firstKey() []byte { return []byte("8e03978e-40d5-43dd-bc93-000000000000") }

// serveMany sends n requests, each with a new key or all with the first one, and returns
// the processor time that they took. When the store is full, it calls pause with a function
// that starts over with an empty one; what that takes does not count.
func serveMany(r rig, n int, replay bool, pause func(renew func())) time.Duration {
	key := firstKey()
	var paused, start time.Duration = 0, cpuTime()
	for i := range n {
		if i%perStore == perStore-1 && !replay {
			began := cpuTime()
			pause(r.renew)
			paused += cpuTime() - began
		}
		if !replay {
			for n, at := i+1, len(key)-1; n > 0 && at > 23; n, at = n/10, at-1 {
				key[at] = '0' + byte(n%10)
			}
		}
		r.serve(string(key))
	}
	return cpuTime() - start - paused
}

// cpuMetric is the processor time of an operation, with what it causes in the
// garbage collector. Other work on the machine disturbs it less than wall time.
const cpuMetric = "cpu-ns/op"

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMiddleware is for profiles; TestMiddlewareRatios compares.
func BenchmarkMiddleware(b *testing.B) {
	for _, tr := range traffics {
		b.Run("bare/impl="+tr.name, tr.bench(false, false))
		b.Run("fresh/impl="+tr.name, tr.bench(true, false))
		b.Run("replay/impl="+tr.name, tr.bench(true, true))
	}
}

// TestMiddlewareRatios measures both middlewares interleaved and prints what
// each adds to its own bare handler, with the medians of an odd number of rounds.
func TestMiddlewareRatios(t *testing.T) {
	if !*ratios {
		t.Skip("a measurement, not a test: run with -ratios")
	}
	const rounds = 7
	cases := []struct {
		name            string
		guarded, replay bool
	}{{"bare", false, false}, {"fresh", true, false}, {"replay", true, true}}
	ns := map[string][]float64{}
	allocs := map[string]int64{}
	for range rounds {
		for _, c := range cases {
			for _, tr := range traffics {
				res := testing.Benchmark(tr.bench(c.guarded, c.replay))
				name := c.name + "/" + tr.name
				ns[name] = append(ns[name], res.Extra[cpuMetric])
				allocs[name] = res.AllocsPerOp()
			}
		}
	}
	median := func(name string) float64 {
		slices.Sort(ns[name])
		return ns[name][rounds/2]
	}
	fmt.Println("| | ours ns | allocs | Fiber ns | allocs | ours adds | Fiber adds | ratio |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, c := range cases {
		ours, fibers := median(c.name+"/ours"), median(c.name+"/fiber")
		fmt.Printf("| %s | %.0f | %d | %.0f | %d |", c.name, ours, allocs[c.name+"/ours"], fibers, allocs[c.name+"/fiber"])
		if c.guarded {
			added, theirs := ours-median("bare/ours"), fibers-median("bare/fiber")
			fmt.Printf(" %.0f | %.0f | **%.2f** |\n", added, theirs, added/theirs)
		} else {
			fmt.Println(" | | |")
		}
	}
}

// httpRig drives a net/http handler.
type httpRig struct {
	guarded bool
	handler http.Handler
	r       http.Request
	body    strings.Reader
	w       sink
}

func newHTTPRig(guarded bool) *httpRig {
	h := &httpRig{guarded: guarded, w: sink{header: make(http.Header)}}
	h.r = http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: "/payments"}, Pattern: "POST /payments", Body: io.NopCloser(&h.body), ContentLength: int64(len(payment)),
		Header: http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {""}},
	}
	return h
}

func (h *httpRig) renew() {
	h.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/payments/pay_0001")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, receipt)
	})
	if !h.guarded {
		return
	}
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	guard, err := httpkey.New(engine, func(*http.Request) (string, error) { return "tenant", nil }, nil)
	if err != nil {
		panic(err)
	}
	h.handler = guard.Handler(h.handler)
}

func (h *httpRig) serve(key string) {
	h.body.Reset(payment)
	h.r.Header["Idempotency-Key"][0] = key
	clear(h.w.header)
	h.w.status = 0
	h.handler.ServeHTTP(&h.w, &h.r)
	if h.w.status != http.StatusCreated {
		panic(fmt.Sprintf("status %d", h.w.status))
	}
}

// sink is a response that only its status is kept of.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header               { return s.header }
func (s *sink) Write(p []byte) (int, error)       { return len(p), nil }
func (s *sink) WriteString(p string) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(status int)            { s.status = status }

// fiberRig drives a Fiber app.
type fiberRig struct {
	guarded bool
	handler fasthttp.RequestHandler
	ctx     fasthttp.RequestCtx
}

func newFiberRig(guarded bool) *fiberRig { return &fiberRig{guarded: guarded} }

func (f *fiberRig) renew() {
	app := fiber.New()
	if f.guarded {
		app.Use(idempotency.New())
	}
	app.Post("/payments", func(c fiber.Ctx) error {
		c.Set("Content-Type", "application/json")
		c.Set("Location", "/payments/pay_0001")
		return c.Status(http.StatusCreated).SendString(receipt)
	})
	f.handler = app.Handler()
	f.ctx.Request.Header.SetMethod(http.MethodPost)
	f.ctx.Request.SetRequestURI("/payments")
	f.ctx.Request.Header.SetContentType("application/json")
	f.ctx.Request.SetBodyString(payment)
}

func (f *fiberRig) serve(key string) {
	f.ctx.Request.Header.Set("X-Idempotency-Key", key)
	f.ctx.Response.Reset()
	f.handler(&f.ctx)
	if f.ctx.Response.StatusCode() != http.StatusCreated {
		panic(fmt.Sprintf("status %d: %s", f.ctx.Response.StatusCode(), f.ctx.Response.Body()))
	}
}

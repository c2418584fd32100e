package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

const answer = `{"id":"pay_1","amount":1200,"currency":"EUR","status":"succeeded"}`

// service answers at once.
func service(b *testing.B) string {
	b.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	b.Cleanup(s.Close)
	return s.URL
}

// bare is the proxy that a gateway is measured by: the standard library's, tuned.
func bare(b *testing.B, to string) http.Handler {
	b.Helper()
	target, err := url.Parse(to)
	must(b, err)
	transport := &http.Transport{MaxIdleConns: 256, MaxIdleConnsPerHost: 256, IdleConnTimeout: 90 * time.Second, DisableCompression: true}
	b.Cleanup(transport.CloseIdleConnections)
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.SetXForwarded()
		},
		Transport: transport, BufferPool: new(pool),
	}
}

type pool struct{ sync.Pool }

func (p *pool) Get() []byte {
	if kept, ok := p.Pool.Get().(*[]byte); ok {
		return *kept
	}
	return make([]byte, 32<<10)
}

func (p *pool) Put(buf []byte) { p.Pool.Put(&buf) }

// quiet is a gateway as it is configured by default, over a store in memory.
func quiet(b *testing.B, to string) http.Handler {
	b.Helper()
	return build(b, at(to), func(n *bundle) {
		n.config.Tenant = config.Tenant{From: "none"}
		n.parts.Logger = slog.New(slog.DiscardHandler)
		var ended atomic.Int64
		n.parts.Exchange = func(x gateway.Exchange) { ended.Add(int64(x.Took)) } // in production exchanges are always counted
	})
}

// BenchmarkGET is a GET that passes through, over the network: the gateway beside a
// bare proxy. Vs-bare is what share of its throughput the gateway has, both taking
// turns in the same run, by the clock and by the work of the processors (which is also
// that of client and service).
func BenchmarkGET(b *testing.B) {
	to := service(b)
	const most = 16
	var lines [2][most]*line
	for i, h := range []http.Handler{bare(b, to), quiet(b, to)} {
		s := httptest.NewServer(h)
		b.Cleanup(s.Close)
		for n := range most {
			lines[i][n] = dial(b, s)
		}
	}
	const request = "GET /things/1?a=b HTTP/1.1\r\nHost: example.com\r\nUser-Agent: bench\r\nAccept: application/json\r\nAuthorization: Bearer token\r\n\r\n"
	b.Run("bare", func(b *testing.B) { lines[0][0].measure(b, request) })
	b.Run("gateway", func(b *testing.B) { lines[1][0].measure(b, request) })
	for _, clients := range []int{1, most} {
		b.Run(fmt.Sprintf("turns/clients=%d", clients), func(b *testing.B) {
			const turn = 50
			var took, worked [2]time.Duration
			for range b.N {
				for i := range lines {
					began, before := time.Now(), worktime(b)
					var all sync.WaitGroup
					for _, l := range lines[i][:clients] {
						all.Go(func() {
							for range turn {
								l.ask(b, request)
							}
						})
					}
					all.Wait()
					took[i] += time.Since(began)
					worked[i] += worktime(b) - before
				}
			}
			b.ReportMetric(float64(took[0])/float64(took[1]), "vs-bare")
			b.ReportMetric(float64(worked[0])/float64(worked[1]), "cpu-vs-bare")
			b.ReportMetric(float64(worked[1].Nanoseconds())/float64(turn*clients*b.N), "cpu-ns/request")
			b.ReportMetric(0, "ns/op") // of no meaning here
		})
	}
}

// worktime is how long the processors have worked for this process, whatever others do
// on the machine.
func worktime(b *testing.B) time.Duration {
	var used syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkGuarded is a POST under a key, over the network: one that runs, and one that
// is answered from the cache.
func BenchmarkGuarded(b *testing.B) {
	to := service(b)
	s := httptest.NewServer(quiet(b, to))
	b.Cleanup(s.Close)
	l := dial(b, s)
	const body = `{"amount":1200,"currency":"EUR","account_id":1}`
	post := func(n int) string {
		return fmt.Sprintf("POST /payments HTTP/1.1\r\nHost: example.com\r\nContent-Type: application/json\r\nIdempotency-Key: \"8e03978e-40d5-43dd-bc93-%012d\"\r\nContent-Length: %d\r\n\r\n%s", n, len(body), body)
	}
	n := 0
	b.Run("fresh", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n++
			l.ask(b, post(n))
		}
	})
	b.Run("replay", func(b *testing.B) { l.measure(b, post(1)) })
}

// BenchmarkHandler is what the handlers themselves cost, without a network in front.
func BenchmarkHandler(b *testing.B) {
	to := service(b)
	for name, h := range map[string]http.Handler{"bare": bare(b, to), "gateway": quiet(b, to)} {
		b.Run("GET/"+name, func(b *testing.B) {
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/things/1?a=b", nil)
			r.Header.Set("Accept", "application/json")
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(&sink{header: make(http.Header)}, r)
			}
		})
	}
	h := quiet(b, to)
	b.Run("replay/gateway", func(b *testing.B) {
		b.ReportAllocs()
		body := strings.NewReader("")
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/payments", body)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
		held := r.Body
		for b.Loop() {
			body.Reset(answer)
			r.Body, r.ContentLength = held, int64(len(answer))
			h.ServeHTTP(&sink{header: make(http.Header)}, r)
		}
	})
}

type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(int)             {}

// line is a connection to a server, and as little of a client as can be.
type line struct {
	conn net.Conn
	in   *bufio.Reader
}

func dial(b *testing.B, s *httptest.Server) *line {
	b.Helper()
	var d net.Dialer
	conn, err := d.DialContext(b.Context(), "tcp", s.Listener.Addr().String())
	must(b, err)
	b.Cleanup(func() { conn.Close() })
	return &line{conn, bufio.NewReader(conn)}
}

// ask sends a request and reads its answer, which ends with a brace.
func (l *line) ask(b *testing.B, request string) {
	if _, err := io.WriteString(l.conn, request); err != nil {
		b.Error(err)
	}
	if got, err := l.in.ReadString('}'); err != nil || !strings.HasSuffix(got, answer) {
		b.Errorf("%q, %v", got, err)
	}
}

func (l *line) measure(b *testing.B, request string) {
	b.ReportAllocs()
	for b.Loop() {
		l.ask(b, request)
	}
}

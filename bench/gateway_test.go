package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

var (
	gatewayRun   = flag.Bool("gateway", false, "measure the gateway beside a bare reverse proxy and nginx; takes some minutes on a quiet machine")
	gatewayQuick = flag.Bool("gateway.quick", false, "a second for each run instead of four")
	gatewayOnly  = flag.String("gateway.only", "", "a pattern of the ways to measure; what is compared with others is left out")
	gatewayDocs  = flag.String("gateway.docs", "", "the folder of benchmarks.md, whose section is written")
)

// TestGateway measures what the gateway adds to a reverse proxy. Every proxy is a
// process of its own, and so is the service behind it.
func TestGateway(t *testing.T) {
	if !*gatewayRun {
		t.Skip("a measurement, not a test: run with -gateway")
	}
	s := full
	if *gatewayQuick {
		s = quick
	}
	s.rounds, s.run, s.warm = 5*s.rounds, s.run/4, s.warm/2 // many short ones: the machine's mood changes within seconds
	l := &lab{TB: t, scale: s, report: &report{live: os.Stdout}, bed: func(t testing.TB) *bed { return newBed(t) }}
	l.report.conditions = proxyConditions(s)
	gateways(l)
	goals := l.report.goals()
	goals.write(os.Stdout)
	if *gatewayDocs != "" && !t.Failed() {
		if err := l.report.publishSection("gateway", filepath.Join(*gatewayDocs, "benchmarks.md")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGatewayRuns runs the measurement for a moment, so that it still works when it
// is needed.
func TestGatewayRuns(t *testing.T) {
	t.Parallel()
	s := smoke
	s.stock = 16
	gateways(&lab{TB: t, scale: s, report: new(report), bed: sharedBed})
}

const (
	direct      = "no proxy"
	bareProxy   = "httputil.ReverseProxy, tuned"
	nginx       = "nginx"
	passThrough = "gateway, GET passed on"
	freshPosts  = "gateway, new keys (SQLite)"
	freshInPG   = "gateway, new keys (PostgreSQL)"
	replayed    = "gateway, replays from its memory"
)

// gateways: a GET through each proxy, and guarded POSTs through ours.
func gateways(l *lab) {
	const clients = 32
	service := l.role("service", "")
	bare := l.role("bare", service.addr)
	own := l.gateway(service.addr)
	url, drop := l.bed(l).create()
	defer drop()
	ownPG := l.gatewayOn(service.addr, url)
	get := func(addr string) *exchange { return &exchange{addr: addr, next: always(getRequest)} }
	names := []string{direct, bareProxy, passThrough, replayed, freshPosts, freshInPG}
	each := []*exchange{get(service.addr), get(bare.addr), get(own.addr), {addr: own.addr, next: keysOf(l.stock)}, {addr: own.addr, next: newKeys()}, {addr: ownPG.addr, next: newKeys()}}
	if path, err := exec.LookPath("nginx"); err == nil {
		names, each = append(names, nginx), append(each, get(l.nginx(path, service.addr).addr))
	}
	ways := each
	if *gatewayOnly != "" {
		only := regexp.MustCompile(*gatewayOnly)
		names, each = slices.Clone(names), slices.Clone(each)
		for i := len(names) - 1; i >= 0; i-- {
			if !only.MatchString(names[i]) {
				names, each = slices.Delete(names, i, i+1), slices.Delete(each, i, i+1)
			}
		}
	}
	if _, err := ways[3].drive(l, load{clients: clients, calls: l.stock}); err != nil { // the keys that are replayed
		l.Fatal(err)
	}
	all := l.interleave(names, func(i int) sample {
		if l.warm > 0 {
			if _, err := each[i].drive(l, load{clients: clients, lasts: l.warm}); err != nil {
				l.Fatal(names[i], err)
			}
		}
		s, err := each[i].drive(l, load{clients: clients, lasts: l.run})
		if err != nil {
			l.Fatal(names[i], err)
		}
		return s
	})
	t := table{
		title: "Through the gateway",
		note:  fmt.Sprintf("%s on kept-alive connections, answers of 200 bytes; a POST has 200 bytes of JSON. Load, proxy and service share the processors.", clientsText(clients)),
		head:  []string{"way", "requests/s", "p50", "p99"},
	}
	for _, name := range names {
		s := all[name]
		t.row(name, s.of(perSecond).text(count), s.of(p50).text(micros), s.of(p99).text(micros))
	}
	l.report.add(t)
	if *gatewayOnly != "" {
		return
	}
	l.report.find(finding{what: "GET passed on, requests/s", beside: bareProxy, got: all[passThrough].over(all[bareProxy], perSecond), goal: atLeast(0.95)})
	if all[nginx] != nil {
		l.report.find(finding{what: "GET passed on, requests/s", beside: nginx, got: all[passThrough].over(all[nginx], perSecond), goal: atLeast(0.6)})
	}
	l.report.find(finding{what: freshPosts + ", requests/s", beside: "–", got: all[freshPosts].of(perSecond), format: count, goal: atLeast(10_000)})
	l.report.find(finding{what: freshInPG + ", requests/s", beside: "–", got: all[freshInPG].of(perSecond), format: count, goal: atLeast(8_000)})
	l.report.find(finding{what: "replays from the gateway's memory, requests/s", beside: passThrough, got: all[replayed].over(all[passThrough], perSecond), goal: atLeast(1.5)})

	for _, way := range ways[2:5] {
		if _, err := way.drive(l, load{clients: l.connections, calls: 4 * l.connections}); err != nil {
			l.Fatal(err)
		}
	}
	rss := own.peak(l)
	l.report.find(finding{
		what: "gateway's memory after all of this, " + clientsText(l.connections), beside: "–", got: spread{rss, rss, rss},
		format: func(v float64) string { return count(v/(1<<20)) + " MiB" }, goal: atMost(256 << 20),
	})
}

// An exchange sends requests on kept-alive connections, one for each client, with as
// little work as a client can have.
type exchange struct {
	addr string
	next func(c *client, buf []byte) []byte
}

func (e *exchange) drive(l *lab, d load) (sample, error) {
	type line struct {
		conn net.Conn
		in   *bufio.Reader
		out  []byte
	}
	lines := make([]line, d.clients)
	for i := range lines {
		conn, err := new(net.Dialer).DialContext(l.Context(), "tcp", e.addr)
		if err != nil {
			return sample{}, err
		}
		defer conn.Close()
		lines[i] = line{conn: conn, in: bufio.NewReaderSize(conn, 4096)}
	}
	return d.drive(l.Context(), func(_ context.Context, c *client) error {
		w := &lines[c.id]
		w.out = e.next(c, w.out[:0])
		if _, err := w.conn.Write(w.out); err != nil {
			return err
		}
		return readAnswer(w.in)
	})
}

// readAnswer reads one answer that has a Content-Length.
func readAnswer(in *bufio.Reader) error {
	status, length := []byte(nil), -1
	for n := 0; ; n++ {
		text, err := in.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("head: %w", err)
		}
		switch {
		case n == 0:
			status = append(status, text...)
		case len(text) <= 2:
			if length < 0 || len(status) < 10 || status[9] != '2' {
				rest, _ := in.Peek(min(in.Buffered(), 300))
				return fmt.Errorf("answered %s %s", bytes.TrimSpace(status), rest)
			}
			_, err := in.Discard(length)
			return err
		case len(text) > 16 && bytes.EqualFold(text[:15], []byte("Content-Length:")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(text[15:]))); err != nil {
				return err
			}
		}
	}
}

const getRequest = "GET /things/17 HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\nAccept: */*\r\nAuthorization: Bearer bench\r\n\r\n"

func always(text string) func(*client, []byte) []byte {
	return func(_ *client, buf []byte) []byte { return append(buf, text...) }
}

var paymentBody = `{"amount": 1200, "currency": "EUR", "account_id": 1, "reference": "` + strings.Repeat("r", 120) + `"}`

func post(buf []byte, key string) []byte {
	return fmt.Appendf(buf, "POST /payments HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\nAuthorization: Bearer bench\r\nContent-Type: application/json\r\nIdempotency-Key: \"%s\"\r\nContent-Length: %d\r\n\r\n%s", key, len(paymentBody), paymentBody)
}

// keysOf sends the same n keys again and again.
func keysOf(n int) func(*client, []byte) []byte {
	return func(c *client, buf []byte) []byte { return post(buf, fmt.Sprintf("a-key-of-the-stock-%d", c.next()%n)) }
}

func newKeys() func(*client, []byte) []byte {
	return func(c *client, buf []byte) []byte {
		return post(buf, fmt.Sprintf("%016x%016x", c.rng.Uint64(), c.rng.Uint64()))
	}
}

// A process is a child of ours that serves at an address.
type process struct {
	addr string
	cmd  *exec.Cmd
}

// start starts a child and waits until it answers.
func (l *lab) start(addr string, cmd *exec.Cmd) *process {
	l.Helper()
	log, err := os.Create(filepath.Join(l.TempDir(), "log")) // a file, as under a supervisor: a pipe would have to be drained
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = log.Close() })
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	l.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with its own children, as nginx has them
		<-ended
	})
	for {
		conn, err := new(net.Dialer).DialContext(l.Context(), "tcp", addr)
		if err == nil {
			_ = conn.Close()
			return &process{addr, cmd}
		}
		select {
		case err := <-ended:
			ended <- err
			said, _ := os.ReadFile(log.Name())
			l.Fatalf("%s ended: %v\n%s", cmd.Path, err, said)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// peak is the most memory that a process has had, in bytes.
func (p *process) peak(l *lab) float64 {
	l.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		l.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		l.Fatal(err)
	}
	return float64(kb) * 1024
}

// command returns the gateway's binary.
var command = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "retrysafe-bench-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "retrysafe")
	build := exec.Command("go", "build", "-o", path, "./cmd/retrysafe")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

func (l *lab) gateway(upstream string) *process {
	l.Helper()
	return l.gatewayOn(upstream, "sqlite:"+filepath.Join(l.TempDir(), "keys.db"))
}

// gatewayOn starts a gateway with this store.
func (l *lab) gatewayOn(upstream, store string) *process {
	l.Helper()
	path, err := command()
	if err != nil {
		l.Fatal(err)
	}
	dir, addr := l.TempDir(), porthold.Lent(l)
	conf := filepath.Join(dir, "retrysafe.yaml")
	text := fmt.Sprintf("listen: %s\nupstream: http://%s\nstore: %q\ntenant: { from: bearer }\nroutes:\n  - { match: \"POST /payments\" }\n", addr, upstream, store)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		l.Fatal(err)
	}
	return l.start(addr, exec.CommandContext(context.WithoutCancel(l.Context()), path, "gateway", "--config", conf))
}

func (l *lab) nginx(path, upstream string) *process {
	l.Helper()
	dir, addr := l.TempDir(), porthold.Lent(l)
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off; worker_processes auto; pid %[1]s/pid; error_log %[1]s/error.log;
events { worker_connections 4096; }
http {
  access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  keepalive_requests 100000000;
  upstream service { server %[2]s; keepalive 256; keepalive_requests 100000000; }
  server { listen %[3]s; location / { proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_next_upstream off; } }
}
`, dir, upstream, addr)
	if err := errors.Join(os.WriteFile(conf, []byte(text), 0o644), os.Chmod(dir, 0o777)); err != nil {
		l.Fatal(err)
	}
	return l.start(addr, exec.CommandContext(context.WithoutCancel(l.Context()), path, "-p", dir, "-c", conf))
}

const (
	roleEnv     = "RETRYSAFE_BENCH_ROLE"
	listenEnv   = "RETRYSAFE_BENCH_LISTEN"
	upstreamEnv = "RETRYSAFE_BENCH_UPSTREAM"
)

// role starts this very program in another role.
func (l *lab) role(name, upstream string) *process {
	l.Helper()
	addr := porthold.Lent(l)
	cmd := exec.CommandContext(context.WithoutCancel(l.Context()), os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+name, listenEnv+"="+addr, upstreamEnv+"="+upstream)
	return l.start(addr, cmd)
}

// restateService is the service's handler for Restate. It is nil without the build tag
// restate.
var restateService func(answer []byte, run func()) (http.Handler, error)

// play plays a role until the process is killed.
func play(name string) {
	s := &http.Server{Addr: os.Getenv(listenEnv), ReadHeaderTimeout: time.Minute}
	answer := []byte(`{"id": 17, "text": "` + strings.Repeat("a", 178) + `"}`)
	var runs atomic.Int64
	showRuns := func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, runs.Load()) }
	switch name {
	case "service":
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/runs" {
				showRuns(w, r)
				return
			}
			runs.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(answer)
		})
	case "bare":
		s.Handler = tunedProxy(os.Getenv(upstreamEnv))
	case "restate":
		h, err := restateService(answer, func() { runs.Add(1) })
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		mux := http.NewServeMux()
		mux.HandleFunc("GET /runs", showRuns)
		mux.Handle("/", h)
		s.Handler, s.Protocols = mux, new(http.Protocols)
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetUnencryptedHTTP2(true)
	}
	fmt.Fprintln(os.Stderr, s.ListenAndServe())
	os.Exit(1)
}

// tunedProxy is a reverse proxy tuned by measurements: connections are kept, buffers
// are pooled.
func tunedProxy(addr string) http.Handler {
	upstream := &url.URL{Scheme: "http", Host: addr}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.SetXForwarded()
			r.Out.Host = r.In.Host
		},
		Transport:  &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, IdleConnTimeout: time.Minute, DisableCompression: true},
		BufferPool: &buffers{},
	}
}

type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return *buf
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(buf []byte) { b.pool.Put(&buf) }

func proxyConditions(s scale) string {
	return fmt.Sprintf("Measured on %s: %s, %d cores for clients, proxy and service together, %s. %d interleaved rounds of %v; medians, in brackets the least and the most of the rounds.",
		time.Now().UTC().Format(time.DateOnly), processor(), runtime.NumCPU(), runtime.Version(), s.rounds, s.run)
}

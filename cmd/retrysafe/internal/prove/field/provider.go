package field

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// Headers between nodes and the provider.
const (
	jobHeader  = "Job"
	byHeader   = "By"
	keyHeader  = "Provider-Key"
	holdHeader = "Hold" // from the client: where to hold the attempt
)

// A provider does what cannot be undone, and remembers it. It honours keys.
type provider struct {
	url    string
	server *http.Server

	mu    sync.Mutex
	mood  mood
	open  int // calls under way
	count int
	jobs  map[string][]booking
	gates map[string]*gate // by job
}

// A booking is one effect.
type booking struct {
	job, key, by, receipt string
	request               string
	calls                 int // that were answered by it, the first included
}

// A mood is how reliable the provider is.
type mood struct {
	// slow is how long it takes at most.
	slow time.Duration
	// loses is how many answers of a hundred it loses; hangs, how many requests it
	// takes up only after hang.
	loses, hangs int
	hang         time.Duration
}

// A gate holds one attempt.
type gate struct {
	arrived, opened chan struct{}
	missed          chan struct{} // closed when no attempt will come any more
}

func openProvider(ctx context.Context) (*provider, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the provider: %w", err)
	}
	p := &provider{
		url:  "http://" + l.Addr().String(),
		jobs: map[string][]booking{}, gates: map[string]*gate{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", p.charge)
	mux.HandleFunc("GET /charges", p.lookUp)
	mux.HandleFunc("POST /gate", p.pass)
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: bound}
	go func() { _ = p.server.Serve(l) }()
	return p, nil
}

func (p *provider) close() { _ = p.server.Close() }

func (p *provider) setMood(m mood) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mood = m
}

func (p *provider) charge(w http.ResponseWriter, r *http.Request) {
	request, err := io.ReadAll(r.Body)
	if err != nil {
		return // its caller has gone before it said what it wanted
	}
	m := p.enter()
	defer p.leave()
	if m.slow > 0 {
		time.Sleep(rand.N(m.slow))
	}
	if rand.N(100) < m.hangs { // it takes effect after the caller has given up
		time.Sleep(m.hang)
	}
	receipt := p.book(booking{job: r.Header.Get(jobHeader), key: r.Header.Get(keyHeader), by: r.Header.Get(byHeader), request: string(request)})
	if rand.N(100) < m.loses {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
			return
		}
	}
	_, _ = io.WriteString(w, receipt)
}

func (p *provider) enter() mood {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open++
	return p.mood
}

func (p *provider) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
}

// idle reports whether all that was asked for is done, also for callers that have given
// up waiting.
func (p *provider) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open == 0
}

// book makes a booking, or finds the one that was made under the same key. Another
// request under that key is another booking: a key is good for the same bytes only.
func (p *provider) book(b booking) (receipt string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.jobs[b.job]
	for i := range all {
		if b.key != "" && all[i].key == b.key && all[i].request == b.request {
			all[i].calls++
			return all[i].receipt
		}
	}
	p.count++
	b.receipt, b.calls = fmt.Sprint("receipt ", p.count), 1
	p.jobs[b.job] = append(all, b)
	return b.receipt
}

func (p *provider) lookUp(w http.ResponseWriter, r *http.Request) {
	if all := p.bookings(r.Header.Get(jobHeader)); len(all) > 0 {
		_, _ = io.WriteString(w, all[len(all)-1].receipt)
	}
}

// bookings returns what was done for a job.
func (p *provider) bookings(job string) []booking {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]booking(nil), p.jobs[job]...)
}

// gate sets up a gate for an attempt at a job.
func (p *provider) gate(job string) *gate {
	g := &gate{arrived: make(chan struct{}), opened: make(chan struct{}), missed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gates[job] = g
	return g
}

// pass lets an attempt wait at its gate.
func (p *provider) pass(w http.ResponseWriter, r *http.Request) {
	job := r.Header.Get(jobHeader)
	p.mu.Lock()
	g := p.gates[job]
	delete(p.gates, job)
	p.mu.Unlock()
	if g != nil {
		close(g.arrived)
		select {
		case <-g.opened:
		case <-r.Context().Done():
		}
	}
	w.WriteHeader(http.StatusOK)
}

// wait waits until the attempt is at the gate, and reports whether it is.
func (g *gate) wait(ctx context.Context) bool {
	select {
	case <-g.arrived:
		return true
	case <-g.missed:
	case <-ctx.Done():
	}
	return g.passed()
}

// passed reports whether the attempt has come as far as the gate.
func (g *gate) passed() bool {
	select {
	case <-g.arrived:
		return true
	default:
		return false
	}
}

func (g *gate) open() { close(g.opened) }

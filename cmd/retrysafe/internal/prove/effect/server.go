package effect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// A Server is a provider that other processes call, over HTTP. It may be unreliable,
// and it holds attempts that the check wants to be held.
type Server struct {
	*Provider
	URL    string
	server *http.Server

	mu     sync.Mutex
	faults Faults
	open   int              // calls under way
	gates  map[string]*Gate // by job
}

// Faults are how unreliable a server is.
type Faults struct {
	// Slow is how long a call takes at most.
	Slow time.Duration
	// Lost is how many answers of a hundred are lost. Late is how many calls of a
	// hundred take effect only after Delay.
	Lost, Late int
	Delay      time.Duration
}

// headerTimeout bounds how long a caller may take to send its headers, generously:
// machines are slow.
const headerTimeout = time.Minute

// Serve opens the provider to other processes, until Close.
func (p *Provider) Serve(ctx context.Context) (*Server, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the provider: %w", err)
	}
	s := &Server{Provider: p, URL: "http://" + l.Addr().String(), gates: map[string]*Gate{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", s.charge)
	mux.HandleFunc("GET /charges", s.find)
	mux.HandleFunc("POST /gate", s.hold)
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}
	go func() { _ = s.server.Serve(l) }() // it ends with Close
	return s, nil
}

// Close ends the server.
func (s *Server) Close() error { return s.server.Close() }

// SetFaults sets how unreliable the server is from now on.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Idle reports whether no call is under way, also none whose caller has given up.
func (s *Server) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open == 0
}

func (s *Server) enter() Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return s.faults
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

func (s *Server) charge(w http.ResponseWriter, r *http.Request) {
	var o Order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest) // or its caller has gone before it said what it wanted
		return
	}
	f := s.enter()
	defer s.leave()
	if f.Slow > 0 {
		time.Sleep(rand.N(f.Slow))
	}
	if rand.N(100) < f.Late {
		time.Sleep(f.Delay)
	}
	id := s.Do(o).ID
	if rand.N(100) < f.Lost {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
			return
		}
	}
	_, _ = io.WriteString(w, id) // a caller that has gone asks again
}

func (s *Server) find(w http.ResponseWriter, r *http.Request) {
	id, _ := s.Find(r.Context(), r.URL.Query().Get("job")) // it never fails
	_, _ = io.WriteString(w, id)
}

func (s *Server) hold(_ http.ResponseWriter, r *http.Request) {
	job := r.URL.Query().Get("job")
	s.mu.Lock()
	g := s.gates[job]
	delete(s.gates, job)
	s.mu.Unlock()
	if g != nil {
		close(g.arrived)
		select {
		case <-g.opened:
		case <-r.Context().Done():
		}
	}
}

// A Gate holds one attempt.
type Gate struct{ arrived, opened, missed chan struct{} }

// Gate sets up a gate for the next attempt at a job that calls [Client.Hold].
func (s *Server) Gate(job string) *Gate {
	g := &Gate{arrived: make(chan struct{}), opened: make(chan struct{}), missed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gates[job] = g
	return g
}

// Wait waits until the attempt is at the gate, and reports whether it is.
func (g *Gate) Wait(ctx context.Context) bool {
	select {
	case <-g.arrived:
		return true
	case <-g.missed:
	case <-ctx.Done():
	}
	return g.Arrived()
}

// Arrived reports whether the attempt has come as far as the gate.
func (g *Gate) Arrived() bool {
	select {
	case <-g.arrived:
		return true
	default:
		return false
	}
}

// Open lets the attempt go on.
func (g *Gate) Open() { close(g.opened) }

// Miss says that no attempt will come to the gate any more.
func (g *Gate) Miss() { close(g.missed) }

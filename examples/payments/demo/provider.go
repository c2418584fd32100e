package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// provider is a payment provider in memory. It honours idempotency keys, and fails as
// its fault says.
type provider struct {
	mu    sync.Mutex
	rows  []charged          // the ledger: one for each charge that really happened
	said  map[string]*spoken // by key
	fault fault
}

// wanted is a request for a charge.
type wanted struct {
	order
	// Merchant is the account that is paid, and Reference the merchant's own name for the
	// charge.
	Merchant  string `json:"merchant,omitempty"`
	Reference string `json:"reference,omitempty"`
}

// charged is a charge that has happened.
type charged struct {
	ID string `json:"id"`
	wanted
	Key string `json:"idempotency_key,omitempty"`
}

// spoken is the answer to a request under a key.
type spoken struct {
	request []byte
	status  int
	body    any
}

// startProvider starts a provider that listens at addr.
func startProvider(ctx context.Context, addr string) (*serving, error) {
	p := &provider{said: make(map[string]*spoken)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", p.charge)
	mux.HandleFunc("GET /ledger", p.ledger)
	mux.HandleFunc("PUT /faults", p.setFault)
	s, err := serve(ctx, addr, mux)
	if err != nil {
		return nil, fmt.Errorf("provider: %w", err)
	}
	return s, nil
}

// charge charges, or does what the fault says.
func (p *provider) charge(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		reply(w, http.StatusBadRequest, problem{"the request cannot be read"})
		return
	}
	var in wanted
	if err := decode(body, &in); err != nil {
		reply(w, http.StatusBadRequest, problem{err.Error()})
		return
	}
	fault, said := p.decide(r.Header.Get("Idempotency-Key"), body, in)
	switch fault.Mode {
	default:
	case slow:
		select {
		case <-time.After(time.Duration(fault.Delay)):
		case <-r.Context().Done():
		}
	case dropAfter:
		panic(http.ErrAbortHandler) // net/http closes the connection without a response
	case errorBefore, errorAfter: // the caller cannot tell which of them
		reply(w, http.StatusInternalServerError, problem{"something went wrong"})
		return
	}
	reply(w, said.status, said.body)
}

// decide returns the answer to a request, and charges if it is new.
func (p *provider) decide(key string, body []byte, in wanted) (fault, *spoken) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.faultOf(in)
	before := p.said[key]
	switch {
	case f.Mode == errorBefore:
		return f, nil
	case before != nil && !bytes.Equal(before.request, body):
		return fault{}, &spoken{status: http.StatusUnprocessableEntity, body: problem{"this key was sent with another request"}}
	case before != nil:
		return f, before
	}
	now := &spoken{request: body, status: http.StatusPaymentRequired, body: problem{"the card was declined"}}
	if f.Mode != decline {
		made := charged{newID("ch"), in, key}
		p.rows = append(p.rows, made)
		now.status, now.body = http.StatusCreated, made
	}
	if key != "" {
		p.said[key] = now
	}
	return f, now
}

// faultOf returns the fault of one request. The fault that was set is for people: the traffic
// does not use it up, and has its own.
func (p *provider) faultOf(in wanted) fault {
	switch {
	case in.Merchant != trafficTenant:
		return p.fault.next()
	case in.AccountID == unluckyDrop:
		return fault{Mode: dropAfter}
	case in.AccountID == unluckyError:
		return fault{Mode: errorBefore}
	default:
		return fault{Mode: none}
	}
}

// ledger lists the charges under a key or a reference, of one merchant if one is given.
func (p *provider) ledger(w http.ResponseWriter, r *http.Request) {
	key, merchant := r.FormValue("key"), r.FormValue("merchant")
	if key == "" {
		reply(w, http.StatusBadRequest, problem{"say which: /ledger?key=K"})
		return
	}
	reply(w, http.StatusOK, p.find(func(at *charged) bool {
		return (at.Key == key || at.Reference == key) && (merchant == "" || at.Merchant == merchant)
	}))
}

func (p *provider) find(match func(*charged) bool) []charged {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := []charged{}
	for i := range p.rows {
		if match(&p.rows[i]) {
			found = append(found, p.rows[i])
		}
	}
	return found
}

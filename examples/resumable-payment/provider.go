package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"sync"

	"github.com/retrysafe/retrysafe"
)

// charge is what the provider says of a payment.
type charge struct {
	ID       string `json:"id"`
	Declined bool   `json:"declined"`
}

// pay asks the provider for a payment. It returns an error only if the outcome is
// unknown; a decline is an outcome.
func pay(ctx context.Context, url string, a retrysafe.Attempt) (made charge, err error) {
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(a.Request))
	if err != nil {
		return made, retrysafe.NotExecuted(err) // nothing was sent
	}
	post.Header.Set("Idempotency-Key", a.Key)
	post.Close = true // net/http sends a request with this header again by itself when a connection that it has used before breaks
	res, err := http.DefaultClient.Do(post)
	if err != nil {
		return made, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return made, fmt.Errorf("the provider answered %s", res.Status)
	}
	return made, json.NewDecoder(res.Body).Decode(&made)
}

// provider is a payment provider in a few lines. It honours keys, and drops one
// connection before it replies.
type provider struct {
	log        *log.Logger
	losesReply bool

	mu    sync.Mutex
	known map[string]charge // by idempotency key
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	made, again := p.known[key]
	if !again {
		if p.known == nil {
			p.known = make(map[string]charge)
		}
		made = charge{ID: fmt.Sprintf("ch_%d", len(p.known)+1)}
		p.known[key] = made
	}
	p.log.Printf("    provider: %s, known before: %v", made.ID, again)
	if p.losesReply {
		p.losesReply = false
		p.log.Print("    provider: the reply is lost")
		panic(http.ErrAbortHandler)
	}
	_ = json.NewEncoder(w).Encode(made) // a caller that is gone asks again
}

// charges returns how many payments were really made.
func (p *provider) charges() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.known)
}

package client

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A budget bounds the retries of all calls together.
type budget struct {
	limit float64 // negative: none

	mu   sync.Mutex
	used float64
}

// spend takes one retry out of the budget, if there is one.
func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit >= 0 && b.used+1 > b.limit {
		return false
	}
	b.used++
	return true
}

// restore gives one retry back.
func (b *budget) restore() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = max(0, b.used-1)
}

// backoff returns how long to wait before the attempt with this number, counted from 1.
func (c *Client) backoff(attempt int, response *http.Response) time.Duration {
	if c.o.Backoff != nil {
		return c.o.Backoff(c.o.MinWait, c.o.MaxWait, attempt-1, response)
	}
	most := c.o.MinWait
	for range attempt - 1 { // doubled step by step, so that it cannot overflow
		if most = 2 * most; most >= c.o.MaxWait {
			most = c.o.MaxWait
			break
		}
	}
	wait := rand.N(most + 1)
	if response != nil {
		after, _ := retryAfter(response.Header)
		wait = max(wait, after)
	}
	return wait
}

// retryAfter returns what Retry-After says, in seconds or as a date.
func retryAfter(h http.Header) (time.Duration, bool) {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0, false
	}
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil {
		return time.Duration(max(0, seconds)) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return max(0, at.Sub(serverTime(h))), true
}

// serverTime returns the API's own time of an answer, so that its dates are not compared with
// another clock.
func serverTime(h http.Header) time.Time {
	if at, err := http.ParseTime(h.Get("Date")); err == nil {
		return at
	}
	return time.Now()
}

// sleep waits, unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A retention remembers for how long APIs remember keys, as their Idempotency-Expires say:
// the shortest for each host.
type retention struct {
	mu     sync.Mutex
	byHost map[string]time.Duration
}

const maxHosts = 1024 // further ones have only Options.Window

func (r *retention) learn(host string, d time.Duration) {
	if d <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.byHost[host]
	if ok && known <= d || !ok && len(r.byHost) >= maxHosts {
		return
	}
	if r.byHost == nil {
		r.byHost = make(map[string]time.Duration)
	}
	r.byHost[host] = d
}

// window returns how long after its beginning an operation may be sent to a host: what the
// options say, and at most nine tenths of what the API has announced.
func (r *retention) window(host string, window time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if announced, ok := r.byHost[host]; ok {
		window = min(window, announced/10*9)
	}
	return window
}

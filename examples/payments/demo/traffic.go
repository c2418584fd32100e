package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/console"
)

// traffic is a client that sends what a busy day brings: new requests, repetitions, two at
// a time, a key with another request, and charges of accounts for which the provider fails.
// It counts the answers.
type traffic struct {
	api string

	mu      sync.Mutex
	minutes map[int64]*console.Minute // by the minute since 1970
	day     int64
	counts  console.Today
}

// every is the pause between two requests.
const every = 120 * time.Millisecond

// The traffic is a tenant of its own: the provider's fault is for the requests of people, and
// so is the log.
const (
	trafficToken  = "demo-traffic"
	trafficTenant = "tenant-traffic"
)

// The provider fails for these accounts of the traffic.
const (
	unluckyDrop  = 9013 // it charges, and drops the connection
	unluckyError = 9014 // it answers 500, and has not charged
)

func newTraffic(api string) *traffic { return &traffic{api: api, minutes: map[int64]*console.Minute{}} }

// run sends requests until ctx ends, and returns when the last one has its answer.
func (t *traffic) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		all.Go(func() { t.operation(ctx, n) })
	}
}

// operation sends one operation, and most of the time again under its key.
func (t *traffic) operation(ctx context.Context, n int) {
	kind, account, key := []string{"payments", "payments", "transfers", "charges"}[n%4], int64(1+n%50), newKey()
	if kind == "charges" && n%40 == 3 {
		account = unluckyDrop
	}
	if kind == "charges" && n%80 == 7 {
		account = unluckyError
	}
	t.send(ctx, kind, key, account, 1200)
	switch rand.IntN(10) {
	case 0, 1, 2:
		t.send(ctx, kind, key, account, 1200)
	case 3:
		t.send(ctx, kind, key, account, 9900) // another amount is another request
	case 4:
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { t.send(ctx, kind, key, account, 1200) })
		}
		both.Wait()
	}
}

// send sends a request of the traffic and counts its answer.
func (t *traffic) send(ctx context.Context, kind, key string, account, amount int64) {
	body, _ := json.Marshal(order{Amount: amount, Currency: "EUR", AccountID: account}) // plain values always marshal
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.api+"/"+kind, bytes.NewReader(body))
	if err != nil {
		return
	}
	r.Header.Set("Authorization", "Bearer "+trafficToken)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", `"`+key+`"`)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return // the node is stopped, or was killed
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	t.count(answer.StatusCode, answer.Header.Get("Idempotent-Replayed") == "true")
}

// count counts one answer.
func (t *traffic) count(status int, replayed bool) {
	now := time.Now().UTC()
	t.mu.Lock()
	defer t.mu.Unlock()
	if day := now.Unix() / 86400; day != t.day {
		t.day, t.counts = day, console.Today{}
	}
	at := now.Unix() / 60
	m := t.minutes[at]
	if m == nil {
		m = new(console.Minute)
		t.minutes[at] = m
		delete(t.minutes, at-int64(hour/time.Minute))
	}
	switch {
	case replayed:
		m.Replayed++
		t.counts.Prevented++
	case status == http.StatusConflict:
		m.Refused++
		t.counts.Prevented++
	case status == http.StatusBadGateway:
		m.Unknown++
	case status >= 500:
		m.Failed++
	case status >= 400 && status != http.StatusPaymentRequired:
		m.Refused++
	default:
		m.Ran++
	}
}

func (t *traffic) today() console.Today {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

func (t *traffic) lastHour() []console.Minute {
	now := time.Now().UTC().Truncate(time.Minute)
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []console.Minute
	for at := now.Add(-hour + time.Minute); !at.After(now); at = at.Add(time.Minute) {
		m := console.Minute{}
		if found := t.minutes[at.Unix()/60]; found != nil {
			m = *found
		}
		m.At = at
		all = append(all, m)
	}
	return all
}

package gateway_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway"
)

// Two gateways over one store are one: duplicates at both are one call upstream.
func TestW13_TwoGateways(t *testing.T) {
	t.Parallel()
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wait := withRoutes(route("POST /payments", waiting))
			one := setup(t, over(open(t)), wait)
			two := setup(t, over(one.store), wait, at(one.upstream.url))
			var all sync.WaitGroup
			for i := range 200 {
				b := []*bundle{one, two}[i%2]
				all.Go(func() {
					got := b.post(t, "/payments", key, `{}`)
					for got.status == http.StatusServiceUnavailable { // the store is slow under so many
						time.Sleep(10 * time.Millisecond)
						got = b.post(t, "/payments", key, `{}`)
					}
					got.is(t, 201, `{"got":{}}`, got.header.Get("Idempotent-Replayed") == "true")
				})
			}
			all.Wait()
			one.upstream.called(t, 1)
		})
	}
}

// Clients that retry through everything that can become of an answer: an order that is
// not protected is executed once at most, one that is keyed always under the same key,
// and whatever two of them are told of one order is the same.
func TestW50_Storm(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\n"
	var mu sync.Mutex
	turned := make(map[string]int) // away, which is not an execution
	away := func(order string) int {
		mu.Lock()
		defer mu.Unlock()
		return turned[order]
	}
	m := newMortal(t, func(e execution) string {
		text := fmt.Sprintf("%s, execution %d", e.header.Get("X-Order"), e.times)
		whole := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(text), text)
		switch rand.IntN(10) {
		case 0:
			return fin
		case 1:
			return rst
		case 2:
			return whole[:rand.IntN(len(whole))] + fin
		case 3:
			return fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", head, len(text), text) + fin
		case 4:
			return "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
		case 5:
			mu.Lock()
			defer mu.Unlock()
			turned[e.header.Get("X-Order")]++
			return "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n" + fin
		case 6:
			return whole + fin
		default:
			return whole
		}
	})
	b := build(t, at(m.url), withRoutes(route("POST /unprotected"), route("POST /keyed", keyed)))
	const orders, clients = 100, 4
	var all sync.WaitGroup
	answers := make(map[string]map[string]bool) // of each order
	for i := range orders * clients {
		path := []string{"/unprotected", "/keyed"}[i%2]
		order := fmt.Sprintf("%s-%d", path[1:], i/clients)
		all.Go(func() {
			for {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(order))
				r.RemoteAddr = "127.0.0.1:1"
				r.Header.Set("X-Tenant-Id", "acme")
				r.Header.Set("X-Order", order)
				r.Header.Set("Idempotency-Key", "key-0123456789-"+order)
				rec := httptest.NewRecorder()
				b.ServeHTTP(rec, r)
				switch text := rec.Body.String(); {
				case rec.Code == http.StatusCreated:
					mu.Lock()
					if answers[order] == nil {
						answers[order] = make(map[string]bool)
					}
					answers[order][text] = true
					mu.Unlock()
					return
				case strings.Contains(text, `"outcome-unknown"`):
					return
				}
			}
		})
	}
	all.Wait()
	for order, told := range answers {
		if len(told) != 1 {
			t.Errorf("%s: clients were told %v", order, told)
		}
	}
	attempts := b.attempts()
	for i := range orders * clients {
		order := fmt.Sprintf("%s-%d", []string{"unprotected", "keyed"}[i%2], i/clients)
		done := m.executed(order)
		if most := attempts[retrysafe.HashKey("key-0123456789-"+order)]; len(done) > most {
			t.Errorf("%s: executed %d times in %d attempts", order, len(done), most)
		}
		if strings.HasPrefix(order, "unprotected") {
			if n := len(done) - away(order); n > 1 {
				t.Errorf("%s: executed %d times, want once at most", order, n)
			}
			continue
		}
		for _, e := range done {
			if e.body != order || e.header.Get("Idempotency-Key") != "key-0123456789-"+order {
				t.Errorf("%s: executed as %+v", order, e)
			}
		}
	}
}

// attempts returns how many there were of each key, by its hash.
func (b *bundle) attempts() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]int)
	for _, x := range b.ended {
		if x.Handling == gateway.HandlingFresh {
			all[x.KeyHash]++
		}
	}
	return all
}

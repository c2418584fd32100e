package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/seed"
)

// An unreliable proxy speaks HTTP: it loses requests and answers, sends requests twice and
// answers 502 without or after having passed the request on.
func unreliable(t *testing.T, target string, rng func(n int) int) *httptest.Server {
	transport := newTransport(t)
	pass := func(r *http.Request, body []byte) (*http.Response, []byte, error) {
		out, err := http.NewRequestWithContext(t.Context(), r.Method, target+r.URL.Path, bytes.NewReader(body))
		if err != nil {
			return nil, nil, err
		}
		out.Header = r.Header.Clone()
		response, err := transport.RoundTrip(out)
		if err != nil {
			return nil, nil, err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return response, text, err
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			hangUp()
		}
		fault := rng(12)
		switch fault {
		case 0:
			w.WriteHeader(http.StatusBadGateway)
			return
		case 1:
			hangUp()
		case 2:
			time.Sleep(time.Duration(rng(20)) * time.Millisecond)
		}
		if fault == 3 { // twice, at the same time
			var twin sync.WaitGroup
			twin.Go(func() { _, _, _ = pass(r, body) })
			defer twin.Wait()
		}
		response, text, err := pass(r, body)
		if fault == 4 && err == nil { // twice, one after the other
			response, text, err = pass(r, body)
		}
		switch {
		case err != nil || fault == 5:
			w.WriteHeader(http.StatusBadGateway)
			return
		case fault == 6:
			hangUp()
		}
		for name, values := range response.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(response.StatusCode)
		if fault == 7 {
			_, _ = w.Write(text[:len(text)/2])
			hangUp()
		}
		_, _ = w.Write(text)
	}))
	t.Cleanup(server.Close)
	return server
}

// Many operations through a network that cuts, resets and delays connections and a
// proxy that loses and doubles requests: one effect each, and each caller gets the answer, or
// an error that is true.
func TestOneEffectThroughAnUnreliableNetwork(t *testing.T) {
	t.Parallel()
	const callers, operations = 16, 1000
	a := newAPI(t, nil, keyed, nil)
	draws := rand.New(rand.NewPCG(seed.For(t), 1))
	var mu sync.Mutex
	rng := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return draws.IntN(n)
	}
	front := unreliable(t, a.URL, rng)
	network, err := netfault.New(strings.TrimPrefix(front.URL, "http://"))
	must(t, err)
	t.Cleanup(func() { network.Close() })
	network.Plan(func(c netfault.Chunk) netfault.Verdict {
		switch rng(30) {
		case 0:
			return netfault.Verdict{Fault: netfault.Cut, Pass: rng(len(c.Data) + 1)}
		case 1:
			return netfault.Verdict{Fault: netfault.Reset, Pass: rng(len(c.Data) + 1)}
		case 2:
			return netfault.Verdict{Delay: time.Duration(rng(10)) * time.Millisecond}
		default:
			return netfault.Verdict{}
		}
	})

	j := openJournal(t, t.TempDir()+"/journal")
	backoff := func(time.Duration, time.Duration, int, *http.Response) time.Duration {
		return time.Duration(rng(5)) * time.Millisecond
	}
	hurried := newClient(t, client.Options{Journal: j, MaxTries: 3, Backoff: backoff, Budget: -1}) // some give up
	url := "http://" + network.Addr() + "/payments"
	work := make(chan string)
	var all sync.WaitGroup
	var answered, doubtful, declined int
	for range callers {
		all.Go(func() {
			for order := range work {
				response, err := hurried.Do(order, post(t, url, order))
				e, exhausted := errors.AsType[*client.ExhaustedError](err)
				mu.Lock()
				switch effects := a.effectsOf(order); {
				case err == nil:
					answered++
					body, _ := io.ReadAll(response.Body)
					if effects != 1 || response.StatusCode != 201 || string(body) != fmt.Sprintf(`{"paid":%q}`, order) {
						t.Errorf("%s: answer %d %s and %d effects", order, response.StatusCode, body, effects)
					}
				case !exhausted:
					t.Errorf("%s: %T: %v", order, err, err)
				case e.MayHaveHappened:
					doubtful++
				default:
					declined++
					if effects != 0 {
						t.Errorf("%s: %d effects, and the error says that it did not happen: %v", order, effects, err)
					}
				}
				mu.Unlock()
			}
		})
	}
	for n := range operations {
		work <- fmt.Sprintf("order-%d", n)
	}
	close(work)
	all.Wait()
	t.Logf("%d answered, %d in doubt, %d not sent", answered, doubtful, declined)
	if answered < operations/2 || doubtful == 0 {
		t.Error("the faults are too many or too few to show anything")
	}

	// What is in doubt is in the journal, and is finished from there.
	unfinished := 0
	patient := newClient(t, client.Options{Journal: j, MaxTries: 50, Backoff: backoff, Budget: -1})
	must(t, patient.Resume(t.Context(), func(op client.Operation, response *http.Response, err error) {
		unfinished++
		paid(t, op.ID, response, err)
	}))
	if unfinished != doubtful {
		t.Errorf("%d operations were resumed, and %d were in doubt", unfinished, doubtful)
	}
	sent := len(a.arrived())
	for n := range operations {
		order := fmt.Sprintf("order-%d", n)
		response, err := patient.Do(order, post(t, url, order)) // a second call for the same purchase
		paid(t, order, response, err)
		if got := a.effectsOf(order); got != 1 {
			t.Errorf("%s has %d effects", order, got)
		}
	}
	if more := len(a.arrived()) - sent; more > 50*(declined+1) {
		t.Errorf("second calls sent %d requests; the journal has the answers of all but %d", more, declined)
	}
}

// A kept-alive connection that is killed at any byte of the request or of the answer: one
// effect, and the answer.
func TestKeepAliveConnectionsKilledAtEveryByte(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"order":%q}`, ""} {
		for _, fault := range []netfault.Fault{netfault.Cut, netfault.Reset} {
			for _, dir := range []netfault.Direction{netfault.ToServer, netfault.ToClient} {
				t.Run(fmt.Sprintf("%s %s, body %t", fault, dir, body != ""), func(t *testing.T) {
					t.Parallel()
					killAtEveryByte(t, body, fault, dir)
				})
			}
		}
	}
}

func killAtEveryByte(t *testing.T, body string, fault netfault.Fault, dir netfault.Direction) {
	a := newAPI(t, nil, keyed, nil)
	server := a.URL + "/payments"
	if body == "" { // the order is in a header then
		engineless := a.Config.Handler
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if order := r.Header.Get("X-Order"); order != "" {
				if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
					t.Errorf("a request without a body arrived with length %d, %v", r.ContentLength, r.TransferEncoding)
				}
				r.Body = io.NopCloser(strings.NewReader(fmt.Sprintf(`{"order":%q}`, order)))
			}
			engineless.ServeHTTP(w, r)
		}))
		t.Cleanup(front.Close)
		server = front.URL + "/payments"
	}
	address, path, _ := strings.Cut(strings.TrimPrefix(server, "http://"), "/")
	network, err := netfault.New(address)
	must(t, err)
	t.Cleanup(func() { network.Close() })
	base := newTransport(t)
	attempts := 0
	c := newClient(t, client.Options{Base: base, Budget: -1, OnAttempt: func(*http.Request, int) { attempts++ }})
	for at := int64(0); ; at++ {
		order := fmt.Sprintf("order-%d", at)
		warm(t, base, "http://"+network.Addr()+"/warm")
		network.Plan(netfault.Once(netfault.AfterBytes(dir, at, fault)))
		r := post(t, "http://"+network.Addr()+"/"+path, order)
		if body == "" {
			r.Body, r.GetBody, r.ContentLength = nil, nil, 0
			r.Header.Set("X-Order", order)
		}
		attempts = 0
		response, err := c.Do("", r)
		paid(t, order, response, err)
		if got := a.effectsOf(order); got != 1 {
			t.Fatalf("byte %d: %d effects", at, got)
		}
		arrived := 0
		for _, r := range a.arrived() {
			if strings.Contains(r.body, fmt.Sprintf("%q", order)) {
				arrived++
			}
		}
		if arrived > attempts {
			t.Fatalf("byte %d: %d requests of %d attempts arrived: net/http sends them again", at, arrived, attempts)
		}
		if network.Seen(dir) < at { // behind the last byte: no fault any more
			network.Plan(nil)
			if at < 100 {
				t.Errorf("only %d bytes were tried", at)
			}
			return
		}
	}
}

// warm makes a connection that is kept.
func warm(t *testing.T, base *http.Transport, url string) {
	t.Helper()
	for kept := false; !kept; {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{PutIdleConn: func(err error) { kept = err == nil }})
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		must(t, err)
		response, err := base.RoundTrip(r)
		if err == nil {
			response.Body.Close()
		}
	}
}

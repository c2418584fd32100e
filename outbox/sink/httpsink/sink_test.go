package httpsink_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/outbox/sink/httpsink"
	"github.com/retrysafe/retrysafe/webhook"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// local lets a sink reach the servers of these tests.
func local() *httpsink.Options {
	return &httpsink.Options{PlainHTTP: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

func newSink(t *testing.T, route httpsink.Route, opts *httpsink.Options) *httpsink.Sink {
	t.Helper()
	s, err := httpsink.New(route, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func newServer(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func message(key, payload string) outbox.Delivery {
	return outbox.Delivery{Message: outbox.Message{Topic: "paid", Key: key, Payload: []byte(payload)}}
}

// one delivers one message.
func one(t *testing.T, s *httpsink.Sink, d outbox.Delivery) outbox.Receipt {
	t.Helper()
	return s.Deliver(t.Context(), []outbox.Delivery{d})[0]
}

func to(url string) httpsink.Route { return httpsink.To(httpsink.Endpoint{URL: url}) }

func TestWebhooksAreSignedAndExact(t *testing.T) {
	t.Parallel()
	const present, next = webhook.Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), webhook.Secret("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
	for key, want := range map[string]string{"k-1": "k-1", "with.a.stop": "msg_d75f3e42b50960bc56177c64785569fe"} { // receivers remember ids
		var got http.Header
		server := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got = r.Header
			if string(body) != "{\"n\":1.0 }\n" || r.Method != http.MethodPost {
				t.Errorf("%s %q", r.Method, body)
			}
			for _, secret := range []webhook.Secret{present, next} {
				if _, err := (webhook.Verifier{Secrets: []webhook.Secret{secret}}).Verify(r.Header, body); err != nil {
					t.Error(err)
				}
			}
		})
		s := newSink(t, httpsink.To(httpsink.Endpoint{URL: server.URL, Secrets: []webhook.Secret{present, next}, Header: http.Header{"authorization": {"Bearer x"}}}), local())
		d := message(key, "{\"n\":1.0 }\n")
		d.Header = map[string]string{"Content-Type": "application/json", "Authorization": "that of the endpoint replaces it", "X-Note": "a\tb"}
		if r := one(t, s, d); r.Err != nil {
			t.Fatal(r.Err)
		}
		if got.Get("Idempotency-Key") != key || got.Get("Content-Type") != "application/json" || got.Get("Authorization") != "Bearer x" {
			t.Errorf("%v", got)
		}
		id := got.Get(webhook.HeaderID)
		if id != want {
			t.Errorf("key %q has the id %q, want %q", key, id, want)
		}
		if r := one(t, s, d); r.Err != nil || got.Get(webhook.HeaderID) != id {
			t.Errorf("the second try has the id %q, the first had %q: %v", got.Get(webhook.HeaderID), id, r.Err)
		}
	}
}

func TestKeyIsQuotedForTheIETF(t *testing.T) {
	t.Parallel()
	var got string
	server := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Idempotency-Key")
		for _, name := range []string{webhook.HeaderID, webhook.HeaderTimestamp, webhook.HeaderSignature} {
			if r.Header.Values(name) != nil {
				t.Errorf("an endpoint without secrets gets %s", name)
			}
		}
	})
	s := newSink(t, httpsink.To(httpsink.Endpoint{URL: server.URL, Quoted: true}), local())
	if r := one(t, s, message(`a"b\c`, "")); r.Err != nil || got != `"a\"b\\c"` {
		t.Errorf("%s, %v", got, r.Err)
	}
}

func TestMessagesThatCannotBeSentAreBuried(t *testing.T) {
	t.Parallel()
	server := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	s := newSink(t, to(server.URL), local())
	for name, change := range map[string]func(d *outbox.Delivery){
		"key":       func(d *outbox.Delivery) { d.Key = "a\r\nX: y" },
		"umlaut":    func(d *outbox.Delivery) { d.Key = "schl\u00fcssel" },
		"other key": func(d *outbox.Delivery) { d.Header = map[string]string{"idempotency-key": "another"} },
		"length":    func(d *outbox.Delivery) { d.Header = map[string]string{"content-length": "7"} },
		"colon":     func(d *outbox.Delivery) { d.Header = map[string]string{"a:b": "c"} },
		"delete":    func(d *outbox.Delivery) { d.Header = map[string]string{"a": "b\x7f"} },
		"id":        func(d *outbox.Delivery) { d.Header = map[string]string{"webhook-id": "another"} },
		"host":      func(d *outbox.Delivery) { d.Header = map[string]string{"host": "elsewhere"} },
		"hop":       func(d *outbox.Delivery) { d.Header = map[string]string{"transfer-encoding": "chunked"} },
		"signature": func(d *outbox.Delivery) { d.Header = map[string]string{"Webhook-Signature": "v1,x"} },
		"name":      func(d *outbox.Delivery) { d.Header = map[string]string{"a b": "c"} },
		"value":     func(d *outbox.Delivery) { d.Header = map[string]string{"a": "b\nc"} },
	} {
		d := message("k", "")
		change(&d)
		if r := one(t, s, d); !outbox.IsPermanent(r.Err) {
			t.Errorf("%s: %v", name, r.Err)
		}
	}
}

// TestW70_OutcomesOfStatuses: what is said is honoured.
func TestW70_OutcomesOfStatuses(t *testing.T) {
	t.Parallel()
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		if after := r.URL.Query().Get("after"); after != "" {
			w.Header().Set("Retry-After", after)
		}
		if status == 307 {
			w.Header().Set("Location", "/200")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "because")
	})
	for path, want := range map[string]struct {
		fate  outbox.AckKind
		after time.Duration
	}{
		"/200":                      {outbox.AckDelivered, 0},
		"/202":                      {outbox.AckDelivered, 0},
		"/204":                      {outbox.AckDelivered, 0},
		"/307":                      {outbox.AckRetry, 0}, // it is not followed
		"/400":                      {outbox.AckDead, 0},
		"/401":                      {outbox.AckRetry, 0},
		"/404":                      {outbox.AckRetry, 0},
		"/408":                      {outbox.AckRetry, 0},
		"/409?after=7":              {outbox.AckRetry, 7 * time.Second},
		"/410":                      {outbox.AckDead, 0},
		"/413":                      {outbox.AckDead, 0},
		"/422":                      {outbox.AckDead, 0},
		"/425":                      {outbox.AckRetry, 0},
		"/429?after=120":            {outbox.AckRetry, 2 * time.Minute},
		"/429?after=-1":             {outbox.AckRetry, 0},
		"/429?after=soon":           {outbox.AckRetry, 0},
		"/500":                      {outbox.AckRetry, 0},
		"/503?after=99999999999999": {outbox.AckRetry, 365 * 24 * time.Hour},
	} {
		r := one(t, newSink(t, to(server.URL+path), local()), message("k", ""))
		fate := outbox.AckRetry
		switch {
		case r.Err == nil:
			fate = outbox.AckDelivered
		case outbox.IsPermanent(r.Err):
			fate = outbox.AckDead
		}
		if fate != want.fate || r.After != want.after {
			t.Errorf("%s: fate %d after %v, want %d after %v: %v", path, fate, r.After, want.fate, want.after, r.Err)
		}
		var status *httpsink.StatusError
		if fate != outbox.AckDelivered && (!errors.As(r.Err, &status) || !strings.Contains(r.Err.Error(), "because")) {
			t.Errorf("%s: %v", path, r.Err)
		}
	}
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	r := one(t, newSink(t, to(server.URL+"/503?after="+strings.ReplaceAll(date, " ", "%20")), local()), message("k", ""))
	if r.After <= 30*time.Minute || r.After > time.Hour {
		t.Errorf("asked to wait until in an hour, it waits %v", r.After)
	}
}

func TestMessageThatSettlesAKeyBringsTheAnswer(t *testing.T) {
	t.Parallel()
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Set-Cookie", "session=1")
		switch r.URL.Path {
		case "/long":
			_, _ = io.WriteString(w, strings.Repeat("x", 51))
		case "/longest":
			_, _ = io.WriteString(w, strings.Repeat("x", 50))
		case "/299", "/300":
			status, _ := strconv.Atoi(r.URL.Path[1:])
			w.WriteHeader(status)
		case "/declined":
			w.WriteHeader(http.StatusPaymentRequired)
			_, _ = io.WriteString(w, "no money")
		case "/cut":
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "ch_1")
		}
	})
	opts := local()
	opts.MaxBody = 50
	opts.Read = func(_ *outbox.Delivery, r *httpsink.Response, receipt *outbox.Receipt) {
		switch r.Status {
		case http.StatusCreated:
			receipt.ProviderRef = string(r.Body)
		case http.StatusPaymentRequired:
			receipt.Err, receipt.Answer = nil, r.Answer()
		}
	}
	settles := message("k", "")
	settles.Settles = &retrysafe.Record{}
	send := func(path string, d outbox.Delivery) outbox.Receipt {
		return one(t, newSink(t, to(server.URL+path), opts), d)
	}
	r := send("/", settles)
	want := &retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}}, Body: []byte("ch_1")}
	if r.Err != nil || !r.Answer.Equal(want) || r.ProviderRef != "ch_1" {
		t.Errorf("%+v %+v", r, r.Answer)
	}
	if r := send("/long", settles); r.Err != nil || !r.Answer.Omitted || len(r.Answer.Body) != 0 {
		t.Errorf("too long: %+v", r)
	}
	if r := send("/longest", settles); r.Err != nil || r.Answer.Omitted || len(r.Answer.Body) != 50 {
		t.Errorf("as long as it may be: %+v", r)
	}
	if r := send("/299", settles); r.Err != nil || r.Answer.Status != 299 {
		t.Errorf("the last status of a success: %+v", r)
	}
	if r := send("/300", settles); r.Err == nil || r.Answer != nil {
		t.Errorf("a 300 is no success: %+v", r)
	}
	if r := send("/declined", settles); r.Err != nil || r.Answer.Status != 402 || string(r.Answer.Body) != "no money" {
		t.Errorf("declined: %+v", r)
	}
	if r := send("/cut", settles); r.Err == nil || outbox.IsPermanent(r.Err) {
		t.Errorf("an answer that was cut is an answer: %+v", r)
	}
	if r := send("/cut", message("k", "")); r.Err != nil {
		t.Errorf("the answer is not needed, and the message has arrived: %v", r.Err)
	}
}

// TestW71_PrivateEndpointsAreRefused: whatever name or notation leads there.
func TestW71_PrivateEndpointsAreRefused(t *testing.T) {
	t.Parallel()
	server := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	opts := &httpsink.Options{PlainHTTP: true}
	for _, host := range []string{
		"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]", "127.1.2.3",
		"10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16",
		"198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"[fe80::1]", "[fe80::1%25lo]", "[fd00:ec2::254]", "[fc00::1]", "[ff02::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2001:db8::1]", "[2001::1]", "[::7f00:1]",
	} {
		r := one(t, newSink(t, to("http://"+host+port), opts), message("k", ""))
		if !outbox.IsPermanent(r.Err) || !errors.Is(r.Err, httpsink.ErrAddress) {
			t.Errorf("%s: %v", host, r.Err)
		}
	}
	for _, url := range []string{
		"http://user:secret@example.com", "https://user@example.com", "ftp://example.com", "file:///etc/passwd", "//example.com", "https://", "https://secret\x7f", "",
	} {
		r := one(t, newSink(t, to(url), opts), message("k", ""))
		if !outbox.IsPermanent(r.Err) || !errors.Is(r.Err, httpsink.ErrEndpoint) || strings.Contains(r.Err.Error(), "secret") {
			t.Errorf("%q: %v", url, r.Err)
		}
	}
	if r := one(t, newSink(t, to("http://example.com"), nil), message("k", "")); !errors.Is(r.Err, httpsink.ErrEndpoint) {
		t.Errorf("without TLS: %v", r.Err)
	}
}

// TestW71_RedirectIntoThePrivateNetIsNotFollowed, nor any other.
func TestW71_RedirectIntoThePrivateNetIsNotFollowed(t *testing.T) {
	t.Parallel()
	inner := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") })
	for _, status := range []int{301, 302, 303, 307, 308} {
		outer := newServer(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inner.URL, status) })
		if r := one(t, newSink(t, to(outer.URL), local()), message("k", "x")); r.Err == nil {
			t.Errorf("%d counts as delivered", status)
		}
	}
}

// The test alone changes the environment, so it is not parallel.
func TestW71_ProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	proxy := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("the proxy was used") })
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	t.Setenv("ALL_PROXY", proxy.URL)
	server := newServer(t, func(http.ResponseWriter, *http.Request) {})
	opts := local()
	opts.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if r := one(t, newSink(t, to(server.URL), opts), message("k", "")); r.Err != nil {
		t.Error(r.Err)
	}
}

// TestW51_EndpointThatDiesIsNotAskedAgain: the sink sends once for each try, also
// over a connection that was kept.
func TestW51_EndpointThatDiesIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var effects atomic.Int32
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for range 2 { // it executes two, and answers the first
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					if effects.Add(1) == 1 {
						_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
					}
				}
			}()
		}
	}()
	for _, payload := range []string{"", "bytes"} {
		effects.Store(0)
		s := newSink(t, to("http://"+l.Addr().String()), local())
		if r := one(t, s, message("1", payload)); r.Err != nil {
			t.Fatal(r.Err)
		}
		r := one(t, s, message("2", payload))
		if r.Err == nil || errors.Is(r.Err, httpsink.ErrNotSent) || outbox.IsPermanent(r.Err) || effects.Load() != 2 {
			t.Errorf("%q: %d effects of two messages, %v", payload, effects.Load(), r.Err)
		}
	}
}

func TestNotSentIsSaid(t *testing.T) {
	t.Parallel()
	refusing := "http://" + porthold.New(t).Addr()
	if r := one(t, newSink(t, to(refusing), local()), message("k", "")); !errors.Is(r.Err, httpsink.ErrNotSent) || outbox.IsPermanent(r.Err) {
		t.Errorf("%v", r.Err)
	}
}

// A slow host gets its share and no more, and the others do not wait for it.
func TestHostsAreBoundedEachByItself(t *testing.T) {
	t.Parallel()
	var inside, most atomic.Int32
	release := make(chan struct{})
	slow := newServer(t, func(http.ResponseWriter, *http.Request) {
		n := inside.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release
		inside.Add(-1)
	})
	var others sync.WaitGroup
	others.Add(10)
	quick := newServer(t, func(http.ResponseWriter, *http.Request) { others.Done() })
	opts := local()
	opts.PerHost = 2
	s := newSink(t, func(_ context.Context, d *outbox.Delivery) (httpsink.Endpoint, error) {
		return httpsink.Endpoint{URL: map[string]string{"slow": slow.URL, "quick": quick.URL}[d.Topic]}, nil
	}, opts)
	var batch []outbox.Delivery
	for n := range 20 {
		d := message(fmt.Sprint(n), "")
		d.Topic = []string{"slow", "quick"}[n%2]
		batch = append(batch, d)
	}
	go func() {
		others.Wait() // all of them, while the slow host holds its own
		close(release)
	}()
	for i, r := range s.Deliver(t.Context(), batch) {
		if r.Err != nil {
			t.Errorf("message %d: %v", i, r.Err)
		}
	}
	if most.Load() > 2 {
		t.Errorf("%d requests were under way to one host", most.Load())
	}
}

func TestEndedContextAndHangingEndpoint(t *testing.T) {
	t.Parallel()
	server := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	opts := local()
	opts.Timeout = 50 * time.Millisecond
	if r := one(t, newSink(t, to(server.URL), opts), message("k", "x")); !errors.Is(r.Err, context.DeadlineExceeded) || outbox.IsPermanent(r.Err) {
		t.Errorf("%v", r.Err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := newSink(t, to(server.URL), local()).Deliver(ctx, []outbox.Delivery{message("k", "x")})
	if got[0].Err == nil {
		t.Error("delivered in a context that had ended")
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	server := newServer(t, func(http.ResponseWriter, *http.Request) {})
	s := newSink(t, httpsink.Topics(map[string]httpsink.Endpoint{"paid": {URL: server.URL}}), local())
	other := message("k", "")
	other.Topic = "refunded"
	got := s.Deliver(t.Context(), []outbox.Delivery{message("k", ""), other})
	if got[0].Err != nil || got[1].Err == nil || outbox.IsPermanent(got[1].Err) {
		t.Errorf("%+v", got)
	}
	panics := newSink(t, func(context.Context, *outbox.Delivery) (httpsink.Endpoint, error) { panic("oops") }, nil)
	if r := one(t, panics, other); r.Err == nil {
		t.Error("delivered by a route that panicked")
	}
	method := newSink(t, httpsink.To(httpsink.Endpoint{URL: server.URL, Method: "PO ST"}), local())
	if r := one(t, method, other); !errors.Is(r.Err, httpsink.ErrEndpoint) || outbox.IsPermanent(r.Err) {
		t.Errorf("a method that is none: %v", r.Err)
	}
	if _, err := httpsink.New(nil, nil); err == nil {
		t.Error("a sink without a route")
	}
}

// A key goes into a header as it is, or not at all: with a blank, a control character or a byte beyond ASCII it is
// refused for good, and nothing is sent.
func TestKeysThatAHeaderCannotCarry(t *testing.T) {
	t.Parallel()
	sent := atomic.Int32{}
	server := newServer(t, func(http.ResponseWriter, *http.Request) { sent.Add(1) })
	s := newSink(t, to(server.URL), local())
	for b := range 256 {
		r := one(t, s, message("key"+string([]byte{byte(b)}), ""))
		if ok := b > ' ' && b < 0x7f; (r.Err == nil) != ok || !ok && !outbox.IsPermanent(r.Err) {
			t.Errorf("a key with the byte %#x: %v", b, r.Err)
		}
	}
	if n := sent.Load(); n != 0x7e-' ' {
		t.Errorf("%d messages were sent", n)
	}
}

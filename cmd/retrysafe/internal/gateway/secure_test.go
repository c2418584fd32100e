package gateway_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
)

// secure is an https upstream that speaks HTTP/2, and what a gateway needs for it.
func secure(t *testing.T, h http.HandlerFunc, change ...func(*httptest.Server)) func(*bundle) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.TLS = new(tls.Config)
	for _, f := range change {
		f(server)
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, "CERTIFICATE", server.Certificate().Raw)
	return func(b *bundle) {
		b.config.Upstream = server.URL
		b.config.UpstreamTLS.CAFile = ca
		b.config.UpstreamTLS.ServerName = "example.com"
	}
}

func write(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// An https upstream is checked, spoken to by HTTP/2, and by its own name.
func TestSecureUpstream(t *testing.T) {
	t.Parallel()
	type seen struct{ proto, host, forwarded string }
	arrived := make(chan seen, 1)
	to := secure(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- seen{r.Proto, r.Host, r.Header.Get("X-Forwarded-Host")}
		created(w, r)
	})
	b := setup(t, to)
	named := func(r *http.Request) { r.Host = "shop.example.com" }
	want := seen{"HTTP/2.0", strings.TrimPrefix(b.config.Upstream, "https://"), "shop.example.com"}
	b.post(t, "/payments", key, `{}`, named).is(t, 201, `{"got":{}}`, false)
	if got := <-arrived; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	b.get(t, "/things", named)
	if got := <-arrived; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}

	b = setup(t, to, func(b *bundle) { b.config.UpstreamTLS.ServerName = "example.org" })
	b.post(t, "/payments", key, `{}`).refused(t, http.StatusServiceUnavailable, "upstream-unreachable")
	b.is(t, key, retrysafe.StateRetryable) // nothing was sent to a stranger
}

// An https upstream that speaks HTTP/1.1 only is spoken to by TLS from the first request on, by
// the transport, which finds that out, and after that by the gateway's own exchange.
func TestSecureUpstreamOfHTTP1(t *testing.T) {
	t.Parallel()
	arrived := make(chan string, 1)
	b := setup(t, secure(t, func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil {
			arrived <- r.Proto + " for " + r.TLS.ServerName
		}
		created(w, r)
	}, func(s *httptest.Server) { s.EnableHTTP2 = false }))
	for i := range 3 {
		b.post(t, "/payments", fmt.Sprint(key, i), `{}`).is(t, 201, `{"got":{}}`, false)
		if got := <-arrived; got != "HTTP/1.1 for example.com" {
			t.Errorf("request %d arrived by %s", i, got)
		}
	}
}

// By HTTP/2 too an answer is stored and replayed as it is, without a length and without a
// body; an upstream that takes too long may have executed the request; and the client's own
// Accept-Encoding counts.
func TestAnswersOverHTTP2(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	b := setup(t, secure(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/parts":
			for range 2 {
				fmt.Fprint(w, "part ")
				_ = http.NewResponseController(w).Flush()
			}
		case "/late":
			<-hold
		case "/encoded":
			fmt.Fprint(w, r.Header["Accept-Encoding"])
		}
	}), withRoutes(route("POST /parts"), route("POST /none"), route("POST /late", func(s *config.Settings) { s.Timeout = time.Second })))
	t.Cleanup(func() { close(hold) })
	for path, want := range map[string]string{"/parts": "part part ", "/none": ""} {
		for _, replayed := range []bool{false, true} {
			b.post(t, path, key+path[1:], `{}`).is(t, 200, want, replayed)
		}
	}
	b.post(t, "/none", other, `{}`).is(t, 200, "", false) // after one that had a body
	rec := httptest.NewRecorder()
	b.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/encoded", nil))
	if got := rec.Body.String(); got != "[]" {
		t.Errorf("the upstream may encode by %s", got)
	}
	for i := range 100 {
		got := b.post(t, "/late", fmt.Sprint(key, i), `{}`)
		if got.status == http.StatusServiceUnavailable && i < 99 {
			continue // on a busy machine there is no connection within that time
		}
		got.refused(t, http.StatusGatewayTimeout, "attempt-unknown")
		if reason := b.state(t, fmt.Sprint(key, i)).Reason; reason != "the service did not answer within 1s" {
			t.Errorf("the reason is %q", reason)
		}
		break
	}
}

// expired makes an upstream show a certificate that has expired.
func expired(t *testing.T) func(*httptest.Server) {
	return func(s *httptest.Server) {
		t.Helper()
		pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), DNSNames: []string{"example.com"}, IsCA: true, BasicConstraintsValid: true,
			NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &pair.PublicKey, pair)
		must(t, err)
		s.TLS.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: pair}}
	}
}

// An upstream whose certificate has expired is sent nothing. The key may be retried, and
// the log names the upstream, the cause and what to do.
func TestExpiredCertificateOfTheUpstream(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	b := setup(t, secure(t, func(http.ResponseWriter, *http.Request) { calls.Add(1) }, expired(t)))
	b.unreachable(t, "certificate has expired", strings.TrimPrefix(b.config.Upstream, "https://"))
	if n := calls.Load(); n != 0 {
		t.Errorf("the upstream was called %d times", n)
	}
}

// An upstream whose name does not resolve is sent nothing. A name with a label that is
// too long is one that no resolver is asked about.
func TestDNSFailureOfTheUpstream(t *testing.T) {
	t.Parallel()
	host := strings.Repeat("a", 64) + ".invalid"
	b := setup(t, at("http://"+host))
	b.unreachable(t, "DNS", host)
}

// unreachable fails unless requests are refused as not executed, for as long as they
// come, and the log says why in these words.
func (b *bundle) unreachable(t *testing.T, words ...string) {
	t.Helper()
	for range 2 {
		b.post(t, "/payments", key, `{}`).refused(t, http.StatusServiceUnavailable, "upstream-unreachable")
		b.is(t, key, retrysafe.StateRetryable)
	}
	b.get(t, "/things").refused(t, http.StatusServiceUnavailable, "upstream-unreachable")
	for _, word := range append(words, "fix=") {
		if n := strings.Count(b.log.String(), word); n < 3 {
			t.Errorf("%q is logged %d times for three requests: %s", word, n, b.log)
		}
	}
}

// The first requests that may and that may not be sent twice go out at the same time:
// their ways share nothing that the first use writes to. The race detector sees it.
func TestFirstRequestsOverTLSMeet(t *testing.T) {
	t.Parallel()
	to := secure(t, created)
	for range 5 {
		b := setup(t, to)
		var both sync.WaitGroup
		both.Go(func() { b.get(t, "/") })
		both.Go(func() { b.post(t, "/payments", "first-requests-1", "{}") })
		both.Wait()
	}
}

// Over HTTP/2 too an upstream that executes and resets the stream was called once.
func TestW51_StreamOfTheUpstreamIsReset(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	b := setup(t, secure(t, func(http.ResponseWriter, *http.Request) {
		calls.Add(1)
		panic(http.ErrAbortHandler)
	}))
	for _, body := range []string{"", `{}`} {
		for round := range 25 {
			calls.Store(0)
			k := fmt.Sprintf("%s-%d-%d", key, len(body), round)
			b.post(t, "/payments", k, body).refused(t, http.StatusBadGateway, "attempt-unknown")
			b.post(t, "/payments", k, body).refused(t, http.StatusConflict, "outcome-unknown")
			b.is(t, k, retrysafe.StateUnknown)
			if n := calls.Load(); n != 1 {
				t.Fatalf("called %d times, want 1", n)
			}
		}
	}
}

// An HTTP/2 connection that is dead and does not say so is given up, also while requests
// keep coming: each of them would be one more whose outcome is unknown.
func TestDeadConnectionIsGivenUp(t *testing.T) {
	t.Parallel()
	var network *netfault.Proxy
	b := setup(t, secure(t, created), func(b *bundle) {
		var err error
		network, err = netfault.New(strings.TrimPrefix(b.config.Upstream, "https://"))
		must(t, err)
		t.Cleanup(func() { must(t, network.Close()) })
		b.config.Upstream = "https://" + network.Addr()
		b.config.Server.DialTimeout = time.Second
		b.config.Routes = []config.Route{route("POST /payments", func(s *config.Settings) { s.Timeout = time.Second })}
	})
	sent := 0
	arrives := func() bool {
		sent++
		return b.post(t, "/payments", fmt.Sprintf("%s-%d", key, sent), `{}`).status == 201
	}
	began := time.Now()
	for !arrives() { // on a busy machine a second is too short for some
		if time.Since(began) > time.Minute {
			t.Fatal("no request arrives")
		}
	}
	// A connection that has rested for a second is closed, and then there is none to die.
	for began = time.Now(); ; {
		network.Strike(netfault.Discard)
		if !arrives() {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("the connection was never dead")
		}
	}
	began, lost := time.Now(), 1
	for ; !arrives(); lost++ {
		if time.Since(began) > time.Minute {
			t.Fatalf("%d requests were lost on a dead connection, and it is still used", lost)
		}
	}
}

// An upstream is shown a certificate, and the next one once its file has changed.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	names := make(chan string, 1)
	to := secure(t, func(_ http.ResponseWriter, r *http.Request) {
		names <- r.TLS.PeerCertificates[0].Subject.CommonName
	}, func(s *httptest.Server) { s.TLS.ClientAuth = tls.RequireAnyClientCert })
	dir := t.TempDir()
	cert, private := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	stamp := time.Now()
	issue := func(name string) {
		t.Helper()
		pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: stamp.Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &pair.PublicKey, pair)
		must(t, err)
		write(t, cert, "CERTIFICATE", der)
		der, err = x509.MarshalECPrivateKey(pair)
		must(t, err)
		write(t, private, "EC PRIVATE KEY", der)
		stamp = stamp.Add(time.Second)
		must(t, os.Chtimes(cert, stamp, stamp))
	}
	issue("first")
	b := setup(t, to, func(b *bundle) { b.config.UpstreamTLS.CertFile, b.config.UpstreamTLS.KeyFile = cert, private })
	shown := func() string {
		t.Helper()
		b.Rest() // the next request makes a connection of its own
		b.get(t, "/")
		return <-names
	}
	becomes := func(before, after string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			switch got := shown(); {
			case got == after:
				return
			case got != before || time.Now().After(end):
				t.Fatalf("it shows %q, want %q", got, after)
			}
		}
	}
	becomes("", "first")
	issue("second")
	becomes("first", "second")
	must(t, os.WriteFile(cert, bytes.Repeat([]byte("x"), 10), 0o600))
	for !strings.Contains(b.log.String(), "cannot be used") { // one that cannot be read changes nothing
		becomes("", "second")
	}
	issue("third")
	becomes("second", "third")
}

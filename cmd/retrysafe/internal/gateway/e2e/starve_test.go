package e2e_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// certificate returns the line of a configuration that has one.
func certificate(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("\ntls: { cert_file: %q, key_file: %q }\n", filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
}

// connect connects to a gateway, until the test ends.
func (g *gateway) connect() (net.Conn, error) {
	dialer := &net.Dialer{Timeout: time.Minute}
	var c net.Conn
	var err error
	if strings.HasPrefix(g.url, "https") {
		c, err = (&tls.Dialer{NetDialer: dialer, Config: anyCertificate}).DialContext(g.t.Context(), "tcp", g.addr)
	} else {
		c, err = dialer.DialContext(g.t.Context(), "tcp", g.addr)
	}
	if err == nil {
		g.t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// honest sends requests of another tenant, and fails if one is not executed.
func (g *gateway) honest(n int) {
	g.t.Helper()
	for i := range n {
		ctx, cancel := context.WithTimeout(g.t.Context(), 30*time.Second)
		got, err := g.post(ctx, "/payments", fmt.Sprintf("a-key-of-an-honest-one-%d", i), fmt.Sprintf(`{"payment": %d}`, i))
		cancel()
		if err != nil || got.status != http.StatusCreated {
			g.t.Fatalf("request %d of an honest tenant: %+v, %v", i, got, err)
		}
	}
}

// Bodies that are announced and do not come, over many connections of HTTP/1 and few of
// HTTP/2, keep no other tenant out.
func TestAnnouncedBodiesStarveEveryTenant(t *testing.T) {
	t.Parallel()
	s := newService(t)
	g := newGateway(t, conf(s, "memory:")+certificate(t)+"server: { max_memory: 64MiB }\n")
	for i := range 256 {
		c, err := g.connect()
		if err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprintf(c, "POST /payments HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer invented-%d\r\nIdempotency-Key: a-key-of-the-hostile-one-%d\r\nContent-Length: 1000000\r\n\r\n{", i, i)
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	var begun atomic.Int64
	for range 3 {
		transport := &http.Transport{TLSClientConfig: anyCertificate.Clone(), ForceAttemptHTTP2: true, MaxConnsPerHost: 1}
		defer transport.CloseIdleConnections()
		for i := range 80 {
			all.Go(func() {
				body, hold := io.Pipe()
				defer context.AfterFunc(ctx, func() { hold.Close() })()
				r, _ := http.NewRequestWithContext(ctx, http.MethodPost, g.url+"/payments", body)
				r.ContentLength = 1000000
				r.Header.Set("Authorization", fmt.Sprintf("Bearer of-streams-%d", i))
				r.Header.Set("Idempotency-Key", fmt.Sprintf("a-key-of-a-hostile-stream-%d", i))
				go func() {
					_, _ = hold.Write([]byte("{")) // when its head was sent
					begun.Add(1)
				}()
				if res, err := transport.RoundTrip(r); err == nil {
					res.Body.Close()
				}
			})
		}
	}
	eventually(t, "all streams have begun", func() bool { return begun.Load() == 240 })
	g.honest(20)
}

// Idle kept-alive connections up to server.max_connections keep no other client out, and
// health is told.
func TestIdleConnectionsAtMaxConnectionsLeaveNoOtherClientServed(t *testing.T) {
	t.Parallel()
	s := newService(t)
	g := newGateway(t, conf(s, "memory:", "server: { max_connections: 300 }"))
	for range 300 {
		c, err := g.connect()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "GET /.retrysafe/livez HTTP/1.1\r\nHost: h\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 15 * time.Second}
	for _, path := range []string{"livez", "readyz"} {
		res, err := fresh.Get(g.url + "/.retrysafe/" + path)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s after %v: %v, %v", path, time.Since(began), res, err)
		}
		res.Body.Close()
	}
	g.honest(20)
}

// Answers that are held in memory are bounded together. Those beyond it are sent and not
// stored, and no retry runs again.
func TestAnswersHeldInMemoryAreUnboundedByDefault(t *testing.T) {
	t.Parallel()
	const clients, size = 200, 1_000_000
	large, release := make([]byte, size), make(chan struct{})
	var calls, held, refused atomic.Int64
	letGo := sync.OnceFunc(func() { close(release) })
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		calls.Add(1)
		w.Header().Set("Content-Length", strconv.Itoa(size))
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(large[:size-10])
		_ = http.NewResponseController(w).Flush()
		held.Add(1)
		<-release
		_, _ = w.Write(large[:10])
	}))
	t.Cleanup(service.Close)
	t.Cleanup(letGo)
	g := newGateway(t, fmt.Sprintf("upstream: %s\nstore: %q\ntenant: { from: bearer }\nserver: { max_memory: 32MiB }\n", service.URL, "sqlite:"+filepath.Join(t.TempDir(), "keys.db")))
	results := make([]answer, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for { // a tenant that holds all that it may is refused for a while
				if results[i], _ = g.post(t.Context(), "/payments", fmt.Sprintf("a-key-for-a-large-answer-%d", i), "{}"); results[i].code() != "gateway-busy" {
					return
				}
				refused.Add(1)
				<-release
			}
		})
	}
	eventually(t, "the service has sent almost all", func() bool { return held.Load()+refused.Load() == clients })
	most := rss(t, g.pid())
	letGo()
	all.Wait()
	t.Logf("with %d answers of 1 MB under way and %d requests refused the gateway has %d MiB", held.Load(), refused.Load(), most>>20)
	if most > 200<<20 { // the answers alone would be that much, and the collector lets 176 MiB come together
		t.Errorf("it has %d MiB", most>>20)
	}
	for i, got := range results {
		if got.status != http.StatusCreated || len(got.body) != size {
			t.Fatalf("client %d got %d, %d bytes: %.200s", i, got.status, len(got.body), got.body)
		}
	}
	stored, omitted := 0, 0
	for i := range clients {
		switch got, err := g.post(t.Context(), "/payments", fmt.Sprintf("a-key-for-a-large-answer-%d", i), "{}"); {
		case err != nil || got.status != http.StatusCreated:
			t.Fatalf("retry %d got %+v, %v", i, got, err)
		case got.code() == "response-not-stored":
			omitted++
		case len(got.body) == size:
			stored++
		}
	}
	if n := calls.Load(); n != clients || stored == 0 || omitted == 0 || stored+omitted != clients {
		t.Errorf("the service was called %d times for %d keys; %d retries got the answer and %d that it was not stored", n, clients, stored, omitted)
	}
}

// A body that comes too slowly is refused with a 408, and counted; nothing is reserved.
func TestSlowBodiesAreRefused(t *testing.T) {
	t.Parallel()
	s := newService(t)
	g := newGateway(t, conf(s, "memory:", "server: { read_header: 1s }"))
	c, err := g.connect()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, "POST /payments HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer me\r\nIdempotency-Key: a-key-of-a-slow-client\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(text), "body-too-slow") {
		t.Errorf("got %d %s", res.StatusCode, text)
	}
	eventually(t, "sent again it is answered", func() bool { // a busy machine may be too slow for a second, too
		got, err := g.post(t.Context(), "/payments", "a-key-of-a-slow-client", `{}`)
		return err == nil && got.status == http.StatusCreated
	})
	if calls, _ := s.called(`{}`); calls != 1 {
		t.Errorf("the service was called %d times", calls)
	}
	g.logs("limit=body_rate", "remedy=")
}

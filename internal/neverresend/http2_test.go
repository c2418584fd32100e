package neverresend_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/retrysafe/retrysafe/internal/neverresend"
)

// A returner is an HTTP/2 server that executes each request and then gives it back,
// by a frame.
type returner struct {
	url     string
	effects atomic.Int32
	trust   *tls.Config
	again   func() // is told of a third effect
}

func newReturner(t *testing.T, giveBack func(stream uint32) []byte) *returner {
	t.Helper()
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	trust := certified.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	b := &returner{url: "https://" + l.Addr().String(), trust: trust}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.ReadFull(conn, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
				_, _ = conn.Write(frame(4, 0, nil)) // SETTINGS
				head := make([]byte, 9)
				for {
					if _, err := io.ReadFull(conn, head); err != nil {
						return
					}
					kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
					head[3] = 0
					if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head)>>8)); err != nil {
						return
					}
					if kind <= 1 && flags&1 != 0 { // DATA or HEADERS, and the stream's end
						if b.effects.Add(1) > 2 {
							b.again()
						}
						_, _ = conn.Write(giveBack(stream))
					}
				}
			}()
		}
	}()
	return b
}

func frame(kind byte, stream uint32, payload []byte) []byte {
	b := []byte{0, 0, byte(len(payload)), kind, 0}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// TestW51_HTTP2NeverResends: what HTTP/2's transport takes for a promise that nothing
// was executed is not believed, whatever the request looks like.
func TestW51_HTTP2NeverResends(t *testing.T) {
	t.Parallel()
	reset := func(code byte) func(uint32) []byte {
		return func(stream uint32) []byte { return frame(3, stream, []byte{0, 0, 0, code}) }
	}
	for name, giveBack := range map[string]func(uint32) []byte{
		"PROTOCOL_ERROR": reset(1), "REFUSED_STREAM": reset(7), "INTERNAL_ERROR": reset(2),
		"GOAWAY": func(uint32) []byte { return frame(7, 0, make([]byte, 8)) },
	} {
		for _, body := range []string{"", "amount=5"} {
			b := newReturner(t, giveBack)
			inner := &http.Transport{TLSClientConfig: b.trust, ForceAttemptHTTP2: true}
			t.Cleanup(inner.CloseIdleConnections)
			ctx, cancel := context.WithCancel(t.Context())
			b.again = cancel // the transport would go on for minutes
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Idempotency-Key", "k")
			_, err = neverresend.Transport(inner).RoundTrip(r)
			if err == nil || errors.Is(err, neverresend.ErrNotSent) {
				t.Errorf("%s, body %q: %v, want an error that does not claim that nothing was sent", name, body, err)
			}
			if got := b.effects.Load(); got != 1 {
				t.Errorf("%s, body %q: %d effects, want 1", name, body, got)
			}
			cancel()
		}
	}
}

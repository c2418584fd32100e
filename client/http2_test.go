package client_test

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/retrysafe/retrysafe/client"
)

// returning starts an HTTP/2 server that executes each request and then gives it back by a
// frame. It returns its URL, a transport for it and the number of effects.
func returning(t *testing.T, giveBack func(stream uint32) []byte) (string, *http.Transport, *atomic.Int32) {
	t.Helper()
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	effects := new(atomic.Int32)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go func() {
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
						effects.Add(1)
						_, _ = conn.Write(giveBack(stream))
					}
				}
			}()
		}
	}()
	transport := &http.Transport{TLSClientConfig: certified.Client().Transport.(*http.Transport).TLSClientConfig.Clone(), ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return "https://" + l.Addr().String(), transport, effects
}

func frame(kind byte, stream uint32, payload []byte) []byte {
	b := []byte{0, 0, byte(len(payload)), kind, 0}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// What HTTP/2's transport takes for a promise that nothing was executed is an attempt like any
// other, and no promise.
func TestHTTP2SendsNothingByItself(t *testing.T) {
	t.Parallel()
	for name, giveBack := range map[string]func(uint32) []byte{
		"REFUSED_STREAM": func(stream uint32) []byte { return frame(3, stream, []byte{0, 0, 0, 7}) },
		"GOAWAY":         func(uint32) []byte { return frame(7, 0, make([]byte, 8)) },
	} {
		for _, empty := range []bool{false, true} {
			url, transport, effects := returning(t, giveBack)
			c := newClient(t, client.Options{Base: transport, MaxTries: 2})
			r := post(t, url, "1")
			if empty {
				r.Body, r.GetBody, r.ContentLength = nil, nil, 0
			}
			_, err := c.Do("", r)
			if e := as[*client.ExhaustedError](t, err); !e.MayHaveHappened || e.Tries != 2 || effects.Load() != 2 {
				t.Errorf("%s, empty %t: %d requests arrived of %d attempts: %v", name, empty, effects.Load(), e.Tries, err)
			}
		}
	}
}

package listener_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
)

// BenchmarkGET is what a front adds to a bare server with the same bounds, for a GET on
// a kept connection over loopback. They take turns, so that both meet the same machine,
// and it is processor time that counts: client, server and system, in one process.
func BenchmarkGET(b *testing.B) {
	answer := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }
	bare := startBare(b, answer)
	ours := startFront(b, answer)
	const clients, batch = 8, 250
	for _, host := range []string{bare, ours} { // warm
		benchGET(b, host, clients, batch)
	}
	var used [2]time.Duration
	requests := 0
	for b.Loop() {
		for i, host := range []string{bare, ours} {
			before := processorTime(b)
			benchGET(b, host, clients, batch)
			used[i] += processorTime(b) - before
		}
		requests += clients * batch
	}
	b.ReportMetric(float64(used[0])/float64(requests), "bare-ns/request")
	b.ReportMetric(float64(used[1])/float64(requests), "front-ns/request")
	b.ReportMetric(float64(used[1])/float64(used[0]), "front/bare")
}

func startBare(b *testing.B, h http.HandlerFunc) (host string) {
	ln, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute}
	go func() { _ = s.Serve(ln) }()
	b.Cleanup(func() { _ = s.Close() })
	return ln.Addr().String()
}

func startFront(b *testing.B, h http.HandlerFunc) (host string) {
	ctx, cancel := context.WithCancel(b.Context())
	ready, done := make(chan listener.Addresses, 1), make(chan error)
	s, err := listener.New(listener.Options{
		Load: func() (*config.Config, error) {
			return &config.Config{Listen: "127.0.0.1:0", Server: config.Server{Write: time.Minute, ReadBody: time.Minute}}, nil
		},
		Build:  func(context.Context, *config.Config) (listener.App, error) { return hello{h}, nil },
		Ready:  func(at listener.Addresses) { ready <- at },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		cancel()
		b.Fatal(err)
	}
	go func() { done <- s.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		<-done
	})
	at := <-ready
	return strings.TrimPrefix(at.Main, "http://")
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchGET sends n requests on each of so many connections.
func benchGET(b *testing.B, host string, clients, n int) {
	request := []byte("GET /accounts/7 HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: bench/1\r\nAccept: application/json\r\n" +
		"Accept-Encoding: gzip\r\nAuthorization: Bearer 0123456789abcdef0123456789abcdef\r\nX-Request-Id: 7f1c2b1e\r\n\r\n")
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			c, err := new(net.Dialer).DialContext(b.Context(), "tcp", host)
			if err != nil {
				b.Error(err)
				return
			}
			defer c.Close()
			buf := make([]byte, 4096)
			for range n {
				if _, err := c.Write(request); err != nil {
					b.Error(err)
					return
				}
				for got := 0; got < 5 || string(buf[got-5:got]) != "hello"; {
					more, err := c.Read(buf[got:])
					if err != nil {
						b.Error(err)
						return
					}
					got += more
				}
			}
		})
	}
	wg.Wait()
}

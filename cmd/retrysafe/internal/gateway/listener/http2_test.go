package listener_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
	"github.com/retrysafe/retrysafe/internal/test/rawh2"
)

func dialHTTP2(t *testing.T, host string) rawh2.Conn {
	t.Helper()
	return rawh2.New(t, dialTLS(t, host, "h2"))
}

// To the App a stream that is reset is a client that has hung up; others of the same
// connection go on.
func TestW49_ResetStreamIsADisconnect(t *testing.T) {
	t.Parallel()
	began, cancelled := make(chan struct{}, 2), make(chan struct{}, 2)
	release := make(chan struct{})
	s := start(t, func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		select {
		case <-r.Context().Done():
			cancelled <- struct{}{}
		case <-release:
		}
	}, withTLS(t))
	c := dialHTTP2(t, s.host())
	c.Get(1)
	c.Get(3)
	<-began
	<-began
	c.Send(rawh2.Reset, 0, 1, "\x00\x00\x00\x08")
	select {
	case <-cancelled:
	case <-time.After(enough):
		t.Fatal("the app was not told")
	}
	close(release)
	if stream, payload := c.Next(rawh2.Headers); stream != 3 || payload[0] != 0x88 {
		t.Errorf("got % x on stream %d, want 200 on stream 3", payload, stream)
	}
}

// A drain tells HTTP/2 clients which of their requests were taken: those are answered,
// and later ones may safely be sent elsewhere.
func TestW49_DrainSaysGoAway(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	s := start(t, func(http.ResponseWriter, *http.Request) {
		close(began)
		<-release
	}, withTLS(t))
	c := dialHTTP2(t, s.host())
	idle := dialHTTP2(t, s.host())
	idle.Next(rawh2.Settings)
	c.Get(1)
	<-began
	s.stop()
	if _, payload := idle.Next(rawh2.GoAway); binary.BigEndian.Uint32(payload) != 0 || binary.BigEndian.Uint32(payload[4:]) != 0 {
		t.Errorf("an idle client got GOAWAY % x, want no stream and no error", payload)
	}
	_, payload := c.Next(rawh2.GoAway)
	if last, code := binary.BigEndian.Uint32(payload), binary.BigEndian.Uint32(payload[4:]); last != 1 || code != 0 {
		t.Errorf("GOAWAY names stream %d and error %d, want 1 and none", last, code)
	}
	c.Get(3) // too late
	close(release)
	if stream, payload := c.Next(rawh2.Headers); stream != 1 || payload[0] != 0x88 {
		t.Errorf("got % x on stream %d, want 200 on stream 1", payload, stream)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if n := s.app(0).served.Load(); n != 1 {
		t.Errorf("the app was given %d requests, want the one that GOAWAY names", n)
	}
}

// net/http's own client moves to a new connection when a reload asks it to.
func TestHTTP2ClientsMoveOnReload(t *testing.T) {
	t.Parallel()
	s := start(t, nil, withTLS(t))
	c := s.client()
	get(t, c, s.addresses().Main)
	s.mu.Lock()
	s.config.Server.MaxHeader = 32 << 10
	s.mu.Unlock()
	s.reloadNow()
	for range 10 {
		if _, _, err := try(context.WithoutCancel(t.Context()), c, http.MethodPost, s.addresses().Main); err != nil {
			t.Fatal(err)
		}
	}
}

// Streams beyond the first of a connection count like connections. Health needs none.
func TestStreamsCountLikeConnections(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}, 6), make(chan struct{})
	s := start(t, func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-release
	}, withTLS(t), func(s *site, _ *listener.Options) {
		s.config.Server.MaxConnections = 4
		trusting(s)
	})
	c := dialHTTP2(t, s.host())
	for stream := uint32(1); stream < 9; stream += 2 {
		c.Get(stream)
		<-began
	}
	for stream := uint32(9); stream < 13; stream += 2 {
		c.Get(stream)
		if got, payload := c.Next(rawh2.Headers); got != stream || payload[0] == 0x88 {
			t.Errorf("got % x on stream %d, want a refusal on %d", payload, got, stream)
		}
	}
	c.Send(rawh2.Headers, rawh2.WholeRequest, 13, "\x82\x04\x11/.retrysafe/livez\x87\x41\x01x")
	if got, payload := c.Next(rawh2.Headers); got != 13 || payload[0] != 0x88 {
		t.Errorf("got % x on stream %d, want its health on 13", payload, got)
	}
	close(release)
	for range 4 {
		if got, payload := c.Next(rawh2.Headers); got >= 9 || payload[0] != 0x88 {
			t.Errorf("got % x on stream %d, want 200 on one of the first four", payload, got)
		}
	}
	if n := s.server.Refusals()["streams"]; n != 2 {
		t.Errorf("counted %d", n)
	}
}

// An address with many connections beside others gets few streams on the next: it would
// begin more requests at the same moment than it is worth to refuse. A client with few
// connections, and one that is alone, has all streams.
func TestConnectionOfAnAddressWithManyHasFewStreams(t *testing.T) {
	t.Parallel()
	s := start(t, func(http.ResponseWriter, *http.Request) {}, withTLS(t))
	from := func(last byte) int {
		t.Helper()
		d := tls.Dialer{
			NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, last)}},
			Config:    &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}},
		}
		c, err := d.DialContext(t.Context(), "tcp", s.host())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, settings := rawh2.New(t, c).Next(rawh2.Settings)
		for ; len(settings) >= 6; settings = settings[6:] {
			if binary.BigEndian.Uint16(settings) == 3 {
				return int(binary.BigEndian.Uint32(settings[2:]))
			}
		}
		t.Fatal("the number of streams is not said")
		return 0
	}
	for range listener.ManyConns + 1 {
		if n := from(2); n != listener.Streams {
			t.Fatalf("a client that is alone may have %d streams, want %d", n, listener.Streams)
		}
	}
	if n := from(1); n != listener.Streams {
		t.Errorf("a second client may have %d streams, want %d", n, listener.Streams)
	}
	if n := from(2); n != listener.FewStreams {
		t.Errorf("a client with many connections may have %d streams, want %d", n, listener.FewStreams)
	}
	if n := from(1); n != listener.Streams {
		t.Errorf("the second connection of another may have %d streams, want %d", n, listener.Streams)
	}
}

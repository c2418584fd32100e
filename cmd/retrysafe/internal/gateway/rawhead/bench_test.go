package rawhead_test

import (
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/rawhead"
)

const typical = "POST /v1/payments?expand=customer HTTP/1.1\r\n" +
	"Host: api.example.com\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\r\n" +
	"Accept: application/json\r\n" +
	"Accept-Encoding: gzip, deflate, br\r\n" +
	"Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n" +
	"Idempotency-Key: \"8e03978e-40d5-43e8-bc93-6894a57f9324\"\r\n" +
	"Content-Type: application/json\r\n" +
	"Content-Length: 0\r\n\r\n"

// BenchmarkHead is what looking at a head of eight headers costs, beside reading it.
func BenchmarkHead(b *testing.B) {
	c := rawhead.Conn(endless{}, nil)
	buf := make([]byte, 4096)
	b.ReportAllocs()
	b.SetBytes(int64(len(typical)))
	for b.Loop() {
		if n, err := c.Read(buf); n != len(typical) || err != nil {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkHeadInTwoReads is the same when a byte of it was read ahead.
func BenchmarkHeadInTwoReads(b *testing.B) {
	c := rawhead.Conn(&stuttering{}, nil)
	buf := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		for range 2 {
			if _, err := c.Read(buf); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkBody is a body that is let through by its count.
func BenchmarkBody(b *testing.B) {
	c := rawhead.Conn(&large{}, nil)
	buf := make([]byte, 32<<10)
	b.ReportAllocs()
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := c.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}

type endless struct{ net.Conn }

func (endless) Read(p []byte) (int, error) { return copy(p, typical), nil }

type stuttering struct {
	net.Conn
	rest string
}

func (s *stuttering) Read(p []byte) (int, error) {
	if s.rest == "" {
		s.rest = typical[1:]
		return copy(p, typical[:1]), nil
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

type large struct {
	net.Conn
	begun bool
}

func (l *large) Read(p []byte) (int, error) {
	if !l.begun {
		l.begun = true
		return copy(p, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999999\r\n\r\n"), nil
	}
	return len(p), nil
}

// BenchmarkServer is a GET over one kept-alive loopback connection, and what
// looking adds to it. The two take turns, and the turns that count are those that
// nothing else on the machine has slowed down: the fastest tenth's slowest.
func BenchmarkServer(b *testing.B) {
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	bare, looked := listen(b), listen(b)
	run(b, bare, hello)
	run(b, rawhead.Listen(looked, nil), hello)
	var took [2][]time.Duration
	var conns [2]net.Conn
	for i, l := range []net.Listener{bare, looked} {
		c, err := new(net.Dialer).DialContext(b.Context(), "tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		conns[i] = c
	}
	buf := make([]byte, 4096)
	const turn = 100
	b.ReportAllocs()
	for first := 0; b.Loop(); first = 1 - first {
		for _, i := range []int{first, 1 - first} {
			c, start := conns[i], time.Now()
			for range turn {
				if _, err := io.WriteString(c, typical); err != nil {
					b.Fatal(err)
				}
				if _, err := c.Read(buf); err != nil { // a small answer comes in one write
					b.Fatal(err)
				}
			}
			took[i] = append(took[i], time.Since(start)/turn)
		}
	}
	slices.Sort(took[0])
	slices.Sort(took[1])
	bareNs, lookedNs := took[0][len(took[0])/10], took[1][len(took[1])/10]
	b.ReportMetric(float64(bareNs), "ns-bare")
	b.ReportMetric(float64(lookedNs), "ns-looked")
	b.ReportMetric(float64(bareNs)/float64(lookedNs), "throughput-ratio")
}

// Package rawh2 is a client of HTTP/2 that sends what it is told to, also requests that
// no other client would send, and shows the frames that come back.
package rawh2

import (
	"encoding/binary"
	"io"
	"testing"
)

// Kinds of frames, as many as tests need.
const (
	Headers  = 1
	Reset    = 3
	Settings = 4
	GoAway   = 7
)

// Flags of a frame with headers.
const endStream, endHeaders = 1, 4

// WholeRequest are the flags of a frame with headers that is a request without a body.
const WholeRequest = endStream | endHeaders

// WasReset is the status of a request whose stream was reset as malformed.
const WasReset = 0

// A Conn is one connection.
type Conn struct {
	t  testing.TB
	rw io.ReadWriter
}

// New begins a connection over one on which HTTP/2 was agreed.
func New(t testing.TB, rw io.ReadWriter) Conn {
	t.Helper()
	c := Conn{t, rw}
	c.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	c.Send(Settings, 0, 0, "")
	return c
}

func (c Conn) write(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.rw, text); err != nil {
		c.t.Fatal(err)
	}
}

// Send sends one frame.
func (c Conn) Send(kind, flags byte, stream uint32, payload string) {
	c.t.Helper()
	head := make([]byte, 9)
	binary.BigEndian.PutUint32(head, uint32(len(payload))<<8)
	head[3], head[4] = kind, flags
	binary.BigEndian.PutUint32(head[5:], stream)
	c.write(string(head) + payload)
}

// Get sends GET / on a stream.
func (c Conn) Get(stream uint32) {
	c.t.Helper()
	c.Send(Headers, WholeRequest, stream, "\x82\x84\x87\x41\x01x") // by HPACK's static table
}

// Request sends a request on the first stream, with fields besides its pseudo-headers,
// and returns what [Conn.Status] does.
func (c Conn) Request(method, target, authority string, fields ...string) int {
	c.t.Helper()
	block := Literal(":method", method) + Literal(":scheme", "https") + Literal(":path", target)
	if authority != "" {
		block += Literal(":authority", authority)
	}
	for ; len(fields) > 0; fields = fields[2:] {
		block += Literal(fields[0], fields[1])
	}
	c.Send(Headers, WholeRequest, 1, block)
	return c.Status()
}

// Literal returns a field of less than 128 bytes as HPACK has it without its tables.
func Literal(name, value string) string {
	return "\x00" + string(rune(len(name))) + name + string(rune(len(value))) + value
}

// Next returns the next frame of a kind.
func (c Conn) Next(kind byte) (stream uint32, payload []byte) {
	c.t.Helper()
	for {
		got, stream, payload := c.frame()
		if got == kind {
			return stream, payload
		}
	}
}

// Status returns the status of the next answer, if it is 200 or 400, or [WasReset].
func (c Conn) Status() int {
	c.t.Helper()
	for {
		kind, _, payload := c.frame()
		switch {
		case kind == Reset:
			if code := binary.BigEndian.Uint32(payload); code != 1 {
				c.t.Errorf("the stream was reset for %d, want PROTOCOL_ERROR", code)
			}
			return WasReset
		case kind == Headers && payload[0] == 0x88: // by HPACK's static table
			return 200
		case kind == Headers && payload[0] == 0x8c:
			return 400
		case kind == Headers:
			c.t.Fatalf("the answer begins with % x", payload[:min(len(payload), 10)])
		}
	}
}

// frame reads one frame.
func (c Conn) frame() (kind byte, stream uint32, payload []byte) {
	c.t.Helper()
	head := make([]byte, 9)
	if _, err := io.ReadFull(c.rw, head); err != nil {
		c.t.Fatalf("read frame: %v", err)
	}
	kind, stream = head[3], binary.BigEndian.Uint32(head[5:])
	head[3] = 0
	payload = make([]byte, binary.BigEndian.Uint32(head)>>8)
	if _, err := io.ReadFull(c.rw, payload); err != nil {
		c.t.Fatalf("read frame: %v", err)
	}
	return kind, stream, payload
}

package wire

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A volley is what is sent on one connection of HTTP/2.
type volley struct {
	*grammar
	name   string // of its requests
	frames []frame
	means  []message // that a strict reader finds in it
	either []message // that may be found instead of some of them
	stream uint32
}

// lawful reports whether fields are those of a request. A content-length that is not
// the body's is looked at apart.
func lawful(fields []field) (m message, ok bool) {
	pseudo, regular := map[string]string{}, false
	for _, f := range fields {
		if strings.ContainsAny(f.value, "\x00\r\n") {
			return m, false
		}
		if strings.HasPrefix(f.name, ":") {
			if _, twice := pseudo[f.name]; twice || regular {
				return m, false
			}
			pseudo[f.name] = f.value
			continue
		}
		regular = true
		switch {
		case !isToken(f.name) || strings.ToLower(f.name) != f.name:
			return m, false
		case f.name == "connection", f.name == "keep-alive", f.name == "proxy-connection", f.name == "transfer-encoding", f.name == "upgrade", f.name == "te" && f.value != "trailers":
			return m, false
		}
	}
	m = message{method: pseudo[":method"], target: pseudo[":path"]}
	for _, name := range []string{":method", ":path", ":scheme"} {
		if pseudo[name] == "" {
			return m, false
		}
		delete(pseudo, name)
	}
	delete(pseudo, ":authority")
	return m, len(pseudo) == 0 && isToken(m.method) && m.method != http.MethodConnect && isVisible(m.target)
}

// honest reports whether a content-length, if there is one, is the body's. Frames say
// where a body ends, and the witness sees that no other length is passed on; but
// net/http hands a request on before its body has come, so that one with a length of 0,
// or with one that is no number, may be passed on without it.
func honest(fields []field, body int) bool {
	for _, f := range fields {
		if f.name == "content-length" && f.value != fmt.Sprint(body) {
			return false
		}
	}
	return true
}

// request adds a request with these changes to its fields.
func (v *volley) request(body string, change func([]field) []field) {
	v.stream += 2
	fields := []field{
		{":method", v.one([]string{"POST", "POST", "POST", "GET", "PUT"})}, {":scheme", "https"}, {":authority", "a"},
		{":path", fmt.Sprintf("%s%s-%d", v.one(routes), v.name, v.stream)},
		{"idempotency-key", fmt.Sprintf(`"%x-h2-%s-%d-0123456789"`, v.run, v.name, v.stream)}, {"content-type", "application/json"},
	}
	if v.IntN(2) == 0 {
		fields = append(fields, field{"content-length", fmt.Sprint(len(body))})
	}
	if change != nil {
		fields = change(fields)
	}
	if m, ok := lawful(fields); ok {
		m.body = []byte(body)
		v.means = append(v.means, m)
		if body != "" && !honest(fields, len(body)) {
			v.either = append(v.either, message{method: m.method, target: m.target})
		}
	}
	flags := byte(flagEndHeaders)
	if body == "" {
		flags |= flagEndStream
	}
	v.send(frameHeaders, flags, v.stream, block(fields))
	for len(body) > 0 {
		n := min(len(body), 1+v.IntN(16<<10))
		flags := byte(0)
		if n == len(body) {
			flags = flagEndStream
		}
		v.send(frameData, flags, v.stream, []byte(body[:n]))
		body = body[n:]
	}
}

func (v *volley) send(kind, flags byte, stream uint32, payload []byte) {
	v.frames = append(v.frames, frame{kind, flags, stream, payload})
}

// with returns a change that adds fields at the end.
func with(more ...field) func([]field) []field {
	return func(f []field) []field { return append(f, more...) }
}

// instead returns a change of the value of one field.
func instead(name, value string) func([]field) []field {
	return func(f []field) []field {
		for i := range f {
			if f[i].name == name {
				f[i].value = value
			}
		}
		return f
	}
}

// without returns a change that leaves one field out.
func without(name string) func([]field) []field {
	return func(f []field) []field {
		for i := range f {
			if f[i].name == name {
				return append(f[:i], f[i+1:]...)
			}
		}
		return f
	}
}

var changes = []func([]field) []field{
	with(field{":path", "/smuggled"}), with(field{":authority", "b"}), with(field{":status", "200"}), with(field{":protocol", "websocket"}), without(":path"), without(":method"), without(":scheme"), without(":authority"),
	instead(":method", "CONNECT"), instead(":method", "post"), instead(":method", "GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST"), instead(":method", ""), instead(":path", ""), instead(":path", "*"), instead(":path", "smuggled"),
	instead(":path", "/x HTTP/1.1\r\nHost: a\r\n\r\nGET /smuggled"), instead(":path", "/\x00"), instead(":authority", "a\r\nX: y"), instead(":authority", "a b"), instead(":scheme", "ftp://"),
	with(field{"transfer-encoding", "chunked"}), with(field{"connection", "keep-alive"}), with(field{"connection", "idempotency-key"}), with(field{"upgrade", "h2c"}), with(field{"te", "gzip"}), with(field{"te", "trailers"}),
	with(field{"content-length", "5"}), with(field{"content-length", "+0"}), with(field{"content-length", "0, 0"}), with(field{"content_length", "3"}), with(field{"transfer_encoding", "chunked"}), with(field{"host", "evil"}),
	with(field{"X-Upper", "a"}), with(field{"x\r\ny", "a"}), with(field{"x y", "a"}), with(field{"", "a"}), with(field{"x", "a\r\nContent-Length: 3"}), with(field{"x", "\x00"}), with(field{"x:", "a"}),
	with(field{"idempotency-key", "a-second-key-of-the-same"}), instead("idempotency-key", ""), instead("idempotency-key", strings.Repeat("k", 300)), instead("idempotency-key", "\xff\xfe-not-text-not-at-all"), without("idempotency-key"),
	with(field{"x-long", strings.Repeat("a", 20000)}), with(field{"expect", "100-continue"}), with(field{"content-encoding", "gzip"}), with(field{"x-http-method-override", "POST"}),
}

// volleys are the kinds of them.
var volleys = []func(v *volley){
	func(v *volley) { // requests side by side
		for range 1 + v.IntN(5) {
			v.request(v.body(), nil)
		}
	},
	func(v *volley) { v.request(v.one(bodies()), changes[v.IntN(len(changes))]) },
	func(v *volley) { v.request(v.one(bodies()), changes[v.IntN(len(changes))]) },
	func(v *volley) { v.request("", changes[v.IntN(len(changes))]) },
	(*volley).continuations, (*volley).rapidReset, (*volley).windows, (*volley).chatter, (*volley).outOfOrder, (*volley).wildFrames, (*volley).tables,
}

// continuations is a head that does not end, or ends late.
func (v *volley) continuations() {
	v.request("", nil)
	last := &v.frames[len(v.frames)-1]
	last.flags &^= flagEndHeaders
	filler := block([]field{{"x", strings.Repeat("a", 1000)}})
	for range 10 + v.IntN(200) {
		v.send(frameContinuation, 0, v.stream, filler)
	}
	if v.IntN(2) == 0 {
		v.send(frameContinuation, flagEndHeaders, v.stream, nil)
	}
}

// rapidReset takes each request back at once.
func (v *volley) rapidReset() {
	for range 50 + v.IntN(200) {
		v.request("", nil)
		v.send(frameReset, 0, v.stream, []byte{0, 0, 0, codeCancel})
	}
}

// windows leaves no room for answers, or far too much.
func (v *volley) windows() {
	switch v.IntN(4) {
	case 0:
		v.send(frameSettings, 0, 0, []byte{0, 4, 0, 0, 0, 0}) // no room at all
		v.request("{}", nil)
		v.send(frameWindow, 0, v.stream, []byte{0, 0, 0, 1})
	case 1:
		v.send(frameWindow, 0, 0, []byte{0x7f, 0xff, 0xff, 0xff})
		v.send(frameWindow, 0, 0, []byte{0x7f, 0xff, 0xff, 0xff})
	case 2:
		v.request("{}", nil)
		v.send(frameWindow, 0, v.stream, []byte{0, 0, 0, 0})
	default:
		v.send(frameSettings, 0, 0, []byte{0, 4, 0xff, 0xff, 0xff, 0xff})
		v.request("{}", nil)
	}
}

// chatter is a flood of frames that ask for nothing.
func (v *volley) chatter() {
	kind := []frame{
		{framePing, 0, 0, make([]byte, 8)}, {frameSettings, 0, 0, nil}, {framePriority, 0, 1, []byte{0, 0, 0, 3, 9}}, {0x42, 0xff, 0, []byte("?")}, {frameSettings, flagAck, 0, nil}, {framePing, flagAck, 0, make([]byte, 8)},
	}[v.IntN(6)]
	for range 300 + v.IntN(1000) {
		v.frames = append(v.frames, kind)
	}
	v.request("{}", nil)
	for range 200 {
		v.send(frameData, 0, v.stream, nil) // after its end
	}
}

// outOfOrder breaks the rules of streams.
func (v *volley) outOfOrder() {
	switch v.IntN(9) {
	case 0:
		v.send(frameData, flagEndStream, 1, []byte("before any head"))
	case 1:
		v.request("{}", nil)
		v.send(frameHeaders, flagEndHeaders|flagEndStream, v.stream, block([]field{{":method", "GET"}}))
	case 2:
		v.stream = 0 // an even one comes next
		v.request("", nil)
	case 3:
		v.stream += 100
		v.request("", nil)
		v.stream -= 102
		v.request("", nil)
	case 4:
		v.send(frameReset, 0, 99, []byte{0, 0, 0, 0})
	case 5:
		v.send(framePush, flagEndHeaders, 1, append([]byte{0, 0, 0, 2}, block([]field{{":method", "GET"}})...))
	case 6:
		v.frames = append(v.frames, goAway(0, codeCalm))
		v.request("{}", nil)
	case 7:
		v.send(frameHeaders, flagEndHeaders|flagEndStream|flagPadded, 1, []byte{200, 0})
	default:
		v.send(frameData, 0, 0, make([]byte, 16<<10+1))
	}
}

// wildFrames changes the heads of frames at random.
func (v *volley) wildFrames() {
	for range 1 + v.IntN(3) {
		v.request(v.one(bodies()), func(f []field) []field { return instead(":path", wild+v.name)(f) })
	}
	v.means = nil // what it means is not known
	f := &v.frames[v.IntN(len(v.frames))]
	switch v.IntN(4) {
	case 0:
		f.kind = byte(v.IntN(12))
	case 1:
		f.flags = byte(v.IntN(256))
	case 2:
		f.stream = uint32(v.IntN(9))
	default:
		f.payload = f.payload[:v.IntN(len(f.payload)+1)]
	}
}

// tables plays with what HPACK remembers.
func (v *volley) tables() {
	head := [][]byte{
		{0xff, 0xff, 0xff, 0xff, 0x7f}, {0x80}, {0xbe}, {0x3f, 0xff, 0xff, 0xff, 0x7f}, {0x00, 0x7f, 0xff, 0xff, 0xff, 0x7f}, {0x00, 0x81, 0xff, 0x81, 0xff}, {0x40},
	}[v.IntN(7)]
	v.stream += 2
	v.send(frameHeaders, flagEndHeaders|flagEndStream, v.stream, head)
	v.request("{}", nil)
}

// Nothing more comes when it is quiet for so long: if all streams have ended, and if
// some have not, as those do not that were taken back.
const (
	quiet     = 20 * time.Millisecond
	patiently = 100 * time.Millisecond
)

// strike2 sends the n-th volley of HTTP/2.
func (t *tormentor) strike2(ctx context.Context, addr string, secure *tls.Config, n int) error {
	g := &grammar{Rand: rand.New(rand.NewPCG(t.seed^0x32, uint64(n))), run: t.seed}
	v := &volley{grammar: g, name: fmt.Sprintf("h2-%d", n), stream: ^uint32(0)}
	volleys[n%len(volleys)](v)
	data := frame{kind: frameSettings, payload: []byte{0, 1, 0, 0, 0, 0}}.appendTo([]byte(preface)) // answers use no table
	for _, f := range v.frames {
		data = f.appendTo(data)
	}
	return t.persist(ctx, data, func() (bool, error) { return t.volley(ctx, addr, secure, v, data) })
}

// volley sends a volley once.
func (t *tormentor) volley(ctx context.Context, addr string, secure *tls.Config, v *volley, data []byte) (busy bool, err error) {
	for _, m := range slices.Concat(v.means, v.either) {
		t.witness.allow(&m)
	}
	c, err := shakeHands(ctx, addr, secure)
	if err != nil {
		return false, fmt.Errorf("the gateway accepts no connection: %w", err)
	}
	defer c.Close()
	t.result.Count("requests", max(1, len(v.means)))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = c.SetWriteDeadline(time.Now().Add(endWithin))
		_, _ = c.Write(data)
	}()
	busy = t.listen2(c, len(v.means), data)
	_ = c.Close()
	<-sent
	return busy, nil
}

// shakeHands connects, again if it was too slow for the gateway the first time.
func shakeHands(ctx context.Context, addr string, secure *tls.Config) (net.Conn, error) {
	dialer := &tls.Dialer{Config: secure}
	for began := time.Now(); ; pause(ctx, 50*time.Millisecond) {
		c, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil || ctx.Err() != nil || time.Since(began) > answerWithin {
			return c, err
		}
	}
}

// listen2 reads the answers to a volley, until nothing more comes, and reports whether
// one is that the gateway cannot now.
func (t *tormentor) listen2(c net.Conn, streams int, data []byte) (busy bool) {
	for ended := map[uint32]bool{}; ; {
		within := quiet
		if len(ended) < streams {
			within = patiently
		}
		_ = c.SetReadDeadline(time.Now().Add(within))
		f, err := readFrame(c)
		if err != nil {
			return busy
		}
		if status := statusOf(f.payload); f.kind == frameHeaders && status > 0 {
			busy = t.judge(status, nil, data) || busy
		}
		if f.kind == frameReset || f.kind <= frameHeaders && f.flags&flagEndStream != 0 {
			ended[f.stream] = true
		}
	}
}

package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A message is a request as a strict reader reads it. This reader shares nothing with
// the gateway's own; it accepts what HTTP allows and every parser reads the same way.
type message struct {
	method, target string
	body           []byte
}

// A reading is what a strict reader makes of a connection's bytes.
type reading struct {
	whole []message
	// wrong is what it stops at; nil if it comes to the end.
	wrong error
}

// errCut: there is more to come, or there was.
var errCut = errors.New("the bytes end inside a message")

// strictly reads all messages of a connection.
func strictly(data []byte) (r reading) {
	for len(data) > 0 {
		m, n, err := nextMessage(data)
		if err != nil {
			r.wrong = err
			return r
		}
		r.whole = append(r.whole, m)
		data = data[n:]
	}
	return r
}

// nextMessage reads one message and says how many bytes it has.
func nextMessage(data []byte) (m message, n int, err error) {
	p := &parser{data: data}
	h, err := p.head()
	if err != nil {
		return m, 0, err
	}
	m = message{method: h.method, target: h.target}
	switch {
	case h.chunked:
		m.body, err = p.chunks()
	default:
		m.body, err = p.take(h.length)
	}
	return m, p.at, err
}

// expectant reports whether data is a whole head whose sender waits to be asked for
// the body.
func expectant(data []byte) bool {
	p := &parser{data: data}
	h, err := p.head()
	return err == nil && h.expects && p.at == len(data)
}

type parser struct {
	data []byte
	at   int
}

// line takes a line that ends in CR LF and has no other control character.
func (p *parser) line() (string, error) {
	end := bytes.IndexByte(p.data[p.at:], '\n')
	if end < 0 {
		return "", errCut
	}
	text, ended := bytes.CutSuffix(p.data[p.at:p.at+end], []byte("\r"))
	if !ended {
		return "", errors.New("a line ends in a bare LF")
	}
	for _, c := range text {
		if c < ' ' && c != '\t' || c == 0x7f {
			return "", fmt.Errorf("a line has the byte %#x", c)
		}
	}
	p.at += end + 1
	return string(text), nil
}

// take takes so many bytes.
func (p *parser) take(n int) ([]byte, error) {
	if len(p.data)-p.at < n {
		return nil, errCut
	}
	p.at += n
	return p.data[p.at-n : p.at], nil
}

// framing is what a head says about its message.
type framing struct {
	method, target string
	chunked        bool
	length         int
	expects        bool // the sender waits to be asked for the body
}

func (p *parser) head() (f framing, err error) {
	first, err := p.line()
	if err != nil {
		return f, err
	}
	parts := strings.Split(first, " ")
	if len(parts) != 3 || !isToken(parts[0]) || parts[0] == "CONNECT" || !isVisible(parts[1]) || parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0" {
		return f, fmt.Errorf("the request line is %q", first)
	}
	f.method, f.target = parts[0], parts[1]
	fields, err := p.fields()
	if err != nil {
		return f, err
	}
	f.expects = len(fields["expect"]) == 1 && strings.EqualFold(fields["expect"][0], "100-continue")
	hosts, lengths, codings := fields["host"], fields["content-length"], fields["transfer-encoding"]
	switch {
	case len(hosts) > 1 || len(hosts) == 0 && parts[2] == "HTTP/1.1":
		return f, fmt.Errorf("%d hosts", len(hosts))
	case len(lengths) > 1, len(codings) > 1, len(lengths)+len(codings) > 1:
		return f, fmt.Errorf("framed by %q and %q", lengths, codings)
	case len(fields["content_length"])+len(fields["transfer_encoding"]) > 0:
		return f, errors.New("an underscore where framing has a hyphen")
	case len(codings) == 1:
		if !strings.EqualFold(codings[0], "chunked") || parts[2] == "HTTP/1.0" {
			return f, fmt.Errorf("the coding %q in %s", codings[0], parts[2])
		}
		f.chunked = true
	case len(lengths) == 1:
		n, err := strconv.ParseUint(lengths[0], 10, 62)
		if err != nil || strings.Trim(lengths[0], "0123456789") != "" {
			return f, fmt.Errorf("the length %q", lengths[0])
		}
		f.length = int(n)
	}
	return f, nil
}

// fields takes header or trailer lines up to the empty one, by names in lower case.
func (p *parser) fields() (map[string][]string, error) {
	all := map[string][]string{}
	for {
		line, err := p.line()
		if err != nil || line == "" {
			return all, err
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) {
			return nil, fmt.Errorf("the header line %q", line)
		}
		name = strings.ToLower(name)
		all[name] = append(all[name], strings.Trim(value, " \t"))
	}
}

// chunks takes a chunked body and its trailers.
func (p *parser) chunks() (body []byte, err error) {
	for {
		line, err := p.line()
		if err != nil {
			return nil, err
		}
		size, extension, extended := strings.Cut(line, ";")
		n, err := strconv.ParseUint(size, 16, 60)
		if err != nil || strings.Trim(size, "0123456789abcdefABCDEF") != "" || extended && strings.ContainsAny(extension, "\r\n") {
			return nil, fmt.Errorf("the chunk line %q", line)
		}
		if n == 0 {
			break
		}
		data, err := p.take(int(n))
		if err != nil {
			return nil, err
		}
		body = append(body, data...)
		switch end, err := p.take(2); {
		case err != nil:
			return nil, err
		case string(end) != "\r\n":
			return nil, fmt.Errorf("a chunk ends in %q", end)
		}
	}
	trailers, err := p.fields()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"host", "content-length", "transfer-encoding", "content_length", "transfer_encoding"} {
		if len(trailers[name]) > 0 {
			return nil, fmt.Errorf("the trailer %s", name)
		}
	}
	return body, nil
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return s != ""
}

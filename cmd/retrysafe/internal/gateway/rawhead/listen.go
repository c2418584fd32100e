package rawhead

import (
	"crypto/tls"
	"net"
)

// Options say what is let through. Nil and zero values are the safe defaults.
type Options struct {
	// MaxHead bounds the request line and header lines of a request, with all
	// line ends. Default 64 KiB. The server's MaxHeaderBytes should be no less,
	// or its own 431 comes first.
	MaxHead int
	// MaxLines bounds the number of header lines, trailers included. Default 200.
	MaxLines int
	// Upgrades lets requests with an Upgrade header through. What follows one is
	// looked at as before, unless its answer is a 101: from there on the
	// connection is not HTTP/1, and its bytes pass.
	Upgrades bool
	// Refused, if set, is told of each refusal, once for its connection: no
	// handler sees it, so no access log does either. It is called by the
	// connection's reader and must not block.
	Refused func(remote net.Addr, why error)
}

const (
	defaultMaxHead  = 64 << 10
	defaultMaxLines = 200
)

func (o *Options) orDefaults() *Options {
	var full Options
	if o != nil {
		full = *o
	}
	if full.MaxHead <= 0 {
		full.MaxHead = defaultMaxHead
	}
	if full.MaxLines <= 0 {
		full.MaxLines = defaultMaxLines
	}
	return &full
}

// Listen returns l with each of its connections wrapped as by [Conn].
func Listen(l net.Listener, opts *Options) net.Listener {
	return &listener{l, opts.orDefaults()}
}

type listener struct {
	net.Listener
	opts *Options
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return wrap(c, l.opts), nil
}

// Conn returns c with its HTTP/1 requests looked at. It is made for net/http's
// server, which reads one head at a time, and one byte ahead while it answers.
//
// A [tls.Conn] must have completed its handshake and not speak HTTP/2; the
// connection's state is then net/http's to see, as Request.TLS.
func Conn(c net.Conn, opts *Options) net.Conn {
	return wrap(c, opts.orDefaults())
}

func wrap(c net.Conn, o *Options) net.Conn {
	looking := &conn{Conn: c, scan: newScanner(o)}
	if inner, ok := c.(stater); ok {
		return &secure{looking, inner}
	}
	return looking
}

// A stater is a TLS connection, in net/http's eyes too; a clear-text one must not
// look like it.
type stater interface{ ConnectionState() tls.ConnectionState }

type secure struct {
	*conn
	stater
}

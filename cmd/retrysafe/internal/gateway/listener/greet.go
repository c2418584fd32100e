package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/rawhead"
)

// greet shakes hands, and hands the connection to the server of its protocol.
func (r *room) greet(s *socket) {
	ctx, cancel := context.WithTimeout(r.hurry, r.terms.readHeader)
	defer cancel()
	c := tls.Server(s, r.tls)
	if err := c.HandshakeContext(ctx); err != nil {
		r.logger.Debug("front: TLS handshake", "remote", s.RemoteAddr().String(), "error", logged(err.Error(), maxText))
		sayPlain(err)
		_ = s.Close()
		return
	}
	if c.ConnectionState().NegotiatedProtocol == "h2" {
		r.to2.give(c)
		return
	}
	r.to1.give(rawhead.Conn(c, r.heads))
}

// sayPlain answers a client that speaks plain HTTP where TLS is spoken.
func sayPlain(err error) {
	var record tls.RecordHeaderError
	if !errors.As(err, &record) || record.Conn == nil {
		return
	}
	switch string(record.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO":
		_ = record.Conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = record.Conn.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
			"This is an HTTPS address, and the request came in clear text.\n"))
	}
}

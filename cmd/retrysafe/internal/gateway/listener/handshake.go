package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/rawhead"
)

// handshake does the TLS handshake, and hands the connection to the server of its
// protocol.
func (r *connServer) handshake(s *connection) {
	ctx, cancel := context.WithTimeout(r.handshakeCtx, r.limits.readHeader)
	defer cancel()
	c := tls.Server(s, r.tls)
	if !s.table.isTrusted(s) {
		s.computing = &computation{turns: r.turns, ctx: ctx, of: s.address, others: s.table.hasOthers}
	}
	err := c.HandshakeContext(ctx)
	if s.computing != nil {
		s.computing.pause()
		s.computing = nil
	}
	if err != nil {
		r.logger.Debug("listener: TLS handshake", "remote", s.RemoteAddr().String(), "error", logged(err.Error(), maxText))
		answerPlaintext(err)
		_ = s.Close()
		return
	}
	switch {
	case c.ConnectionState().NegotiatedProtocol != "h2":
		r.http1.conns.give(rawhead.Conn(c, r.heads))
	case s.table.isOneOfMany(s):
		r.fewStreams.conns.give(c)
	default:
		r.http2.conns.give(c)
	}
}

// answerPlaintext answers a client that sends plain HTTP to a TLS address.
func answerPlaintext(err error) {
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

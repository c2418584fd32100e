package http1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"time"
)

// An exchange is one request and its answer. It is pooled: all that belongs to one request
// is set by reset.
type exchange struct {
	client *Client
	call   *Call
	conn   *conn // nil before there is one, and when it was given back
	kept   bool  // the connection has served before
	out    []byte
	cancel func() bool // stops the context from ending the connection
	sender *sender     // nil if the request went out in one write
	failed error       // why a part of the request was not sent; there may be an answer all the same

	res    *http.Response // the answer: own, or one that net/http has read
	own    http.Response
	header http.Header
	body   answerBody
}

const (
	// smallBody is the size up to which the body of a request is read before anything is
	// sent, and goes out in one write with the head. That fits into the send buffer of a
	// socket, so that the write does not wait for the server to read.
	smallBody = 16 << 10
	// maxReused bounds the memory that an exchange leaves to the next one.
	maxReused = 2 * smallBody
)

func (x *exchange) reset(c *Client, call *Call) {
	x.client, x.call = c, call
	x.conn, x.kept, x.cancel, x.sender, x.failed, x.res = nil, false, nil, nil, nil, nil
	x.body = answerBody{x: x}
}

// recycle gives the exchange back to its pool.
func (x *exchange) recycle() {
	c := x.client
	x.client, x.call, x.res, x.body = nil, nil, nil, answerBody{}
	x.own = http.Response{}
	if cap(x.out) > maxReused {
		x.out = nil
	}
	clear(x.header)
	c.exchanges.Put(x)
}

// run sends the request and reads the head of the answer. If it fails, the connection is
// closed and the body of the request is not read any more.
func (x *exchange) run() error {
	r := x.call.Request
	if err := r.Context().Err(); err != nil {
		return notSent(err)
	}
	length, expects := bodyLength(r), expectsContinue(r)
	var err error
	if x.out, err = appendHead(x.out[:0], r, length); err != nil {
		return notSent(err)
	}
	whole := length == 0
	if length > 0 && length <= smallBody && !expects {
		if x.out, err = appendBody(x.out, r.Body, int(length)); err != nil {
			return notSent(err)
		}
		whole = true
	}
	if err := x.send(); err != nil {
		return err
	}
	answered := false
	if expects && x.failed == nil {
		if answered, err = x.awaitContinue(); err != nil {
			return x.fail(err)
		}
		whole = answered // the server did not ask for the body
	}
	if !whole && x.failed == nil {
		x.sender = startSender(x.conn, r.Body, length)
	}
	if !answered {
		if err := x.readFinal(); err != nil {
			return x.fail(err)
		}
	}
	if expects && answered || x.res.StatusCode == http.StatusSwitchingProtocols {
		x.res.Close = true
	}
	x.body.begin(x.res)
	return nil
}

// send writes the head, and what else is to go with it, to a connection. If a kept one
// accepts nothing of it, another one is used: then nothing was sent. If a part of it was
// written, the server may have answered that before it closed the connection; x.failed
// says so.
func (x *exchange) send() error {
	call := x.call
	for {
		conn, kept, err := x.client.connect(call)
		if err != nil {
			return notSent(x.cause(err))
		}
		x.conn, x.kept = conn, kept
		x.cancel = context.AfterFunc(call.Request.Context(), conn.abort)
		if err := conn.limit(call.Deadline); err != nil {
			x.drop()
			return notSent(err)
		}
		before := conn.socket.written.Load()
		if err = conn.write(x.out); err == nil {
			return nil
		}
		if conn.socket.written.Load() != before {
			x.failed = fmt.Errorf("write: %w", x.cause(err))
			return nil
		}
		x.drop()
		if err = x.cause(err); !kept || isEnd(err) {
			return notSent(err)
		}
	}
}

// readFinal reads heads until one is not informational.
func (x *exchange) readFinal() error {
	for {
		if err := x.readHead(); err != nil {
			return err
		}
		if !isInformational(x.res.StatusCode) {
			return nil
		}
		x.inform()
	}
}

// isInformational reports whether another answer follows.
func isInformational(status int) bool {
	return status >= 100 && status < 200 && status != http.StatusSwitchingProtocols
}

func (x *exchange) inform() {
	if x.call.Inform != nil {
		x.call.Inform(x.res.StatusCode, x.res.Header)
	}
}

// awaitContinue waits until the server wants the body, or for as long as it is given to say
// so. It reports whether the server has sent its final answer instead.
func (x *exchange) awaitContinue() (answered bool, err error) {
	conn, until := x.conn, time.Now().Add(x.client.o.ContinueTimeout)
	if d := x.call.Deadline; !d.IsZero() && d.Before(until) {
		until = d
	}
	for {
		if err := conn.socket.SetReadDeadline(until); err != nil {
			return false, err
		}
		_, err := conn.in.Peek(1)
		if end := conn.socket.SetReadDeadline(x.call.Deadline); end != nil {
			return false, end
		}
		if r := x.call.Request.Context(); r.Err() != nil { // the deadline that it has set is gone
			return false, r.Err()
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !isEnd(x.cause(err)) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if err := x.readHead(); err != nil {
			return false, err
		}
		switch status := x.res.StatusCode; {
		case !isInformational(status):
			return true, nil
		case status == http.StatusContinue:
			x.inform()
			return false, nil
		}
		x.inform()
	}
}

// fail ends an exchange that has no answer and returns why. What went wrong with the body of
// the request comes first: the server may only have been waiting for the rest of it.
func (x *exchange) fail(err error) error {
	err, kept := x.cause(err), x.kept && x.body.first
	x.drop()
	if s := x.sender; s != nil && s.unread != nil {
		return s.unread
	}
	if x.failed != nil && !isEnd(err) {
		err = x.failed
	}
	if kept && !isEnd(err) {
		err = fmt.Errorf("%w: %w", ErrStale, err)
	}
	return err
}

// cause returns what err comes from: the end of the context, the deadline, or the
// connection.
func (x *exchange) cause(err error) error {
	if end := x.call.Request.Context().Err(); end != nil {
		return end
	}
	late := errors.Is(err, os.ErrDeadlineExceeded) || x.conn != nil && x.conn.socket.late
	if d := x.call.Deadline; late && !d.IsZero() && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// isEnd reports whether it was the caller that ended an exchange, by its context or its
// deadline.
func isEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// drop closes the connection, and waits until the body of the request is not read any more.
func (x *exchange) drop() {
	if x.conn == nil {
		return
	}
	x.cancel()
	x.conn.close()
	x.conn = nil
	if x.sender != nil {
		_ = x.call.Request.Body.Close() // so that a read of it that waits comes to its end
		<-x.sender.done
	}
}

// release gives the connection back when the answer has come to its end, or closes it if the
// next request cannot be sent on it.
func (x *exchange) release() {
	if x.res.Close || x.failed != nil || x.conn.in.Buffered() > 0 || x.sender != nil && !x.sender.hasSent() || !x.cancel() {
		x.drop()
		return
	}
	x.client.idle.put(x.conn)
	x.conn = nil
}

// An answerBody is the body of an answer. It gives the connection back at its end.
type answerBody struct {
	x     *exchange
	inner io.Reader // of net/http; nil if the length is known
	left  int64     // bytes that are still to come, if inner is nil
	first bool      // no byte of an answer has come on this exchange's connection yet
	err   error     // io.EOF at the end
}

// begin prepares the body for the answer whose head was read.
func (b *answerBody) begin(res *http.Response) {
	b.x.conn.socket.left = math.MaxInt64
	if res != &b.x.own {
		b.inner = res.Body
	} else {
		b.left = res.ContentLength
	}
	res.Body = b
	if b.inner == http.NoBody || b.inner == nil && b.left == 0 {
		b.end()
	}
}

func (b *answerBody) Read(p []byte) (n int, err error) {
	switch {
	case b.err != nil:
		return 0, b.err
	case b.inner != nil:
		n, err = b.inner.Read(p)
	default:
		n, err = b.x.conn.in.Read(p[:min(int64(len(p)), b.left)])
		if b.left -= int64(n); b.left == 0 {
			err = io.EOF
		} else if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		b.end()
	case err != nil:
		b.err = b.x.cause(err)
		b.x.drop()
	}
	return n, b.err
}

func (b *answerBody) end() {
	b.err = io.EOF
	b.x.release()
}

// Close ends the exchange. If the answer has not come to its end, its connection is closed.
func (b *answerBody) Close() error {
	x := b.x
	if x == nil {
		return nil
	}
	x.drop()
	x.recycle()
	return nil
}

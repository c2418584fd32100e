package http1

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bodyLength is how many bytes a request has behind its head: 0 if none, -1 if that is not
// known.
func bodyLength(r *http.Request) int64 {
	if r.Body == nil || r.Body == http.NoBody {
		return 0
	}
	if r.ContentLength > 0 {
		return r.ContentLength
	}
	return -1
}

// expectsContinue reports whether a request wants to be asked for its body.
func expectsContinue(r *http.Request) bool {
	lines := r.Header["Expect"]
	return len(lines) > 0 && bodyLength(r) != 0 && r.ProtoAtLeast(1, 1) && strings.EqualFold(strings.Trim(lines[0], " \t"), "100-continue")
}

// appendBody appends a body that has n bytes.
func appendBody(b []byte, body io.Reader, n int) ([]byte, error) {
	b = slices.Grow(b, n)
	m, err := io.ReadFull(body, b[len(b):len(b)+n])
	if err != nil {
		return b, fmt.Errorf("read the body of the request: %w", err)
	}
	return b[:len(b)+m], nil
}

// A sender sends the body of a request while its answer is awaited: the server may answer
// before it has all of it.
type sender struct {
	done   chan struct{} // closed when the body is not read any more
	unread error         // why the body could not be read; valid when done is closed
	failed error         // why it was not sent
}

// sendBuffer is the memory for a part of a body on its way.
const sendBuffer = 32 << 10

func startSender(c *conn, body io.Reader, length int64) *sender {
	s := &sender{done: make(chan struct{})}
	go func() { // the exchange waits for it
		defer close(s.done)
		if length > 0 {
			s.sendLength(c, body, length)
		} else {
			s.sendChunks(c, body)
		}
		if s.unread != nil {
			c.abort() // the server would wait for the rest of the request
		}
	}()
	return s
}

// sendLength sends a body of known length.
func (s *sender) sendLength(c *conn, body io.Reader, length int64) {
	buf := make([]byte, min(length, sendBuffer))
	for length > 0 {
		n, err := body.Read(buf[:min(length, int64(len(buf)))])
		if n > 0 {
			if s.failed = c.write(buf[:n]); s.failed != nil {
				return
			}
			length -= int64(n)
		}
		if err != nil && length > 0 {
			s.cannotRead(err)
			return
		}
	}
}

// sendChunks sends a body of unknown length, each part of it as soon as it is there.
func (s *sender) sendChunks(c *conn, body io.Reader) {
	const room = 8 // for the size of a chunk, before it
	buf := make([]byte, room+sendBuffer+2)
	for {
		n, err := body.Read(buf[room : room+sendBuffer])
		if n > 0 {
			size := strconv.AppendInt(make([]byte, 0, room), int64(n), 16)
			size = append(size, '\r', '\n')
			from := room - len(size)
			copy(buf[from:], size)
			copy(buf[room+n:], "\r\n")
			if s.failed = c.write(buf[from : room+n+2]); s.failed != nil {
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			s.failed = c.write([]byte("0\r\n\r\n"))
			return
		case err != nil:
			s.cannotRead(err)
			return
		}
	}
}

func (s *sender) cannotRead(err error) {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	s.unread = fmt.Errorf("read the body of the request: %w", err)
	s.failed = s.unread
}

// sentWithin is how long an answer that has come to its end waits for the end of its
// request, which the server seems to have got.
const sentWithin = 50 * time.Millisecond

// hasSent reports whether the whole body was sent.
func (s *sender) hasSent() bool {
	select {
	case <-s.done:
		return s.failed == nil
	default:
	}
	wait := time.NewTimer(sentWithin)
	defer wait.Stop()
	select {
	case <-s.done:
		return s.failed == nil
	case <-wait.C:
		return false
	}
}

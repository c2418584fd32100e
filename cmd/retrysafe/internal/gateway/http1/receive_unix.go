//go:build unix

package http1

import (
	"errors"
	"syscall"
)

// Supported reports whether this system can tell without waiting what has come on a
// connection. Where it cannot, a kept connection could not be checked.
const Supported = true

// receiveNow receives into buf what has come on the socket.
func (s *socket) receiveNow(fd uintptr) {
	flags := syscall.MSG_DONTWAIT
	if s.peek {
		flags |= syscall.MSG_PEEK
	}
	for {
		s.n, _, s.err = syscall.Recvfrom(int(fd), s.buf, flags)
		if !errors.Is(s.err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(s.err, syscall.EAGAIN) || errors.Is(s.err, syscall.EWOULDBLOCK) {
		s.err = errNothingYet
	}
}

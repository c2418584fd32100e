package porthold

import (
	"os"
	"syscall"
)

// A holder is a socket that is bound to a port and does not listen. The kernel
// refuses connections to such a port, and binds no other socket to it unless both
// have SO_REUSEADDR.
type holder struct{ fd int }

// hold binds without SO_REUSEADDR: that fails if any socket is bound to the port, be
// it another holder's, one that listens, or one of a connection that lingers.
func hold(port int) (holder, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return holder{}, os.NewSyscallError("socket", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		_ = syscall.Close(fd)
		return holder{}, os.NewSyscallError("bind", err)
	}
	return holder{fd}, nil
}

// share sets SO_REUSEADDR or takes it away. The kernel looks at the option of the
// holder's socket whenever another socket is being bound.
func (h holder) share(with bool) error {
	on := 0
	if with {
		on = 1
	}
	return os.NewSyscallError("setsockopt", syscall.SetsockoptInt(h.fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, on))
}

func (h holder) close() error { return os.NewSyscallError("close", syscall.Close(h.fd)) }

// stopListening ends the listening of a socket, whatever descriptors there are of it.
func stopListening(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) }

package exit

import (
	"errors"
	"net"
	"syscall"
)

// listenHint returns what to do about an address that cannot be listened on, or nothing
// for another error.
func listenHint(err error) string {
	op, ok := errors.AsType[*net.OpError](err)
	switch {
	case !ok || op.Op != "listen":
		return ""
	case errors.Is(err, syscall.EADDRINUSE):
		return "another process listens there: stop it, or choose another address (--listen, or in the configuration)"
	case errors.Is(err, syscall.EACCES):
		return "this user may not listen on a port below 1024: choose a higher one, or grant CAP_NET_BIND_SERVICE"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine does not have that address: choose one that it has, or 127.0.0.1"
	default:
		return ""
	}
}

//go:build !unix

package http1

import "errors"

// Supported reports whether this system can tell without waiting what has come on a
// connection. Where it cannot, a kept connection could not be checked.
const Supported = false

// receiveNow cannot tell, so that no connection is used again.
func (s *socket) receiveNow(uintptr) { s.err = errors.ErrUnsupported }

//go:build !linux

package linear

import "time"

// now is the time, in nanoseconds. It must not be set while the check runs.
func now() int64 { return time.Now().UnixNano() }

package outbox

import "time"

// A Backoff is how long a message waits before it is sent again. The wait doubles with
// each try, from First up to Longest. Half of it is random, so that messages that failed
// together are not sent again together.
type Backoff struct {
	First, Longest time.Duration
}

// after returns the wait after this number of tries. It is at least as long as the
// receiver asked for. At is the random number for the random half, from 0 to 1.
func (b Backoff) after(tries int, asked time.Duration, at float64) time.Duration {
	d := b.Longest
	if shift := max(tries-1, 0); b.First <= b.Longest>>shift { // so that the shift does not overflow
		d = b.First << shift
	}
	return max(d/2+time.Duration(at*float64(d/2)), asked)
}

package outbox

import "time"

// A Backoff says how long a message waits before it is sent again: twice as long
// after each try, up to a longest time, and a random part of it, so that what
// failed together does not come back together.
type Backoff struct {
	First, Longest time.Duration
}

// after returns the wait after so many tries, at least as long as the receiver
// asked for. At is where in its random part, from 0 to 1.
func (b Backoff) after(tries int, asked time.Duration, at float64) time.Duration {
	d := b.Longest
	if shift := tries - 1; shift < 30 {
		d = min(b.First<<max(shift, 0), b.Longest)
	}
	return max(d/2+time.Duration(at*float64(d/2)), asked)
}

package sim

import "math/bits"

// chance decides whatever a world leaves open. A seed decides for it, or a list of
// decisions that an earlier world has taken. Zero is always the plainest choice, and
// the one that is taken when the list is over: no fault, no delay, the first in line.
type chance struct {
	state    uint64
	script   []uint32
	scripted bool
	at       int
	// taken are the decisions so far, if they are kept.
	taken []uint32
	keeps bool
}

// draw returns a number from 0 to n-1.
func (c *chance) draw(n int) int {
	var v uint32
	switch {
	case !c.scripted: // splitmix64: one addition and two multiplications a number
		c.state += 0x9e3779b97f4a7c15
		hi, _ := bits.Mul64(mixed(c.state), uint64(n))
		v = uint32(hi)
	case c.at < len(c.script):
		v = c.script[c.at] % uint32(n)
		c.at++
	}
	if c.keeps {
		c.taken = append(c.taken, v)
	}
	return int(v)
}

// hit reports whether something with this many chances in 1,000 happens.
func (c *chance) hit(rate int) bool { return c.draw(1000) >= 1000-rate }

func mixed(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

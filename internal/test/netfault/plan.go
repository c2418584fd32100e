package netfault

import (
	"bytes"
	"time"
)

// A Chunk is what one read gave, on its way through the proxy.
type Chunk struct {
	// Conn is the number of the connection, from 1, in the order of arrival.
	Conn int
	Dir  Direction
	// Offset counts the bytes of this connection and direction that came before
	// this chunk since the plan was set.
	Offset int64
	// Data is valid only during the call and must not be changed.
	Data []byte
}

// A Verdict says what becomes of a chunk. The zero value lets it pass.
type Verdict struct {
	// Delay holds the chunk back, and with it all that follows in its direction.
	Delay time.Duration
	// Fault strikes after the first Pass bytes of the chunk have been passed on.
	Fault Fault
	// Pass is meaningful only with a Fault.
	Pass int
}

// A Plan judges each chunk before it passes. It is called one chunk at a time
// over all connections, so it may keep state without locks; it must not call
// the proxy.
type Plan func(Chunk) Verdict

// AfterBytes is a plan in which every connection fails as soon as n bytes have
// passed in dir, counted from when the plan was set or the connection began,
// whichever is later. With n == 0 the first byte does not pass.
func AfterBytes(dir Direction, n int64, f Fault) Plan {
	return func(c Chunk) Verdict {
		if c.Dir != dir || c.Offset+int64(len(c.Data)) < n {
			return Verdict{}
		}
		return Verdict{Fault: f, Pass: int(max(0, n-c.Offset))}
	}
}

// Before is a plan in which every connection fails just before seq passes in
// dir. If seq arrives in pieces, the last piece is what does not pass.
func Before(dir Direction, seq string, f Fault) Plan {
	return onSequence(dir, seq, func(start, _ int) Verdict {
		return Verdict{Fault: f, Pass: max(0, start)}
	})
}

// After is a plan in which every connection fails as soon as seq has passed in dir.
func After(dir Direction, seq string, f Fault) Plan {
	return onSequence(dir, seq, func(_, end int) Verdict {
		return Verdict{Fault: f, Pass: end}
	})
}

// Slow is a plan in which each chunk of the given directions is held back by
// delay; without directions, each chunk of both.
func Slow(delay time.Duration, dirs ...Direction) Plan {
	affects := among(dirs)
	return func(c Chunk) Verdict {
		if affects[c.Dir] {
			return Verdict{Delay: delay}
		}
		return Verdict{}
	}
}

// Always is a plan in which every connection fails at its next byte in one of
// the given directions; without directions, in either.
func Always(f Fault, dirs ...Direction) Plan {
	affects := among(dirs)
	return func(c Chunk) Verdict {
		if affects[c.Dir] {
			return Verdict{Fault: f}
		}
		return Verdict{}
	}
}

// Once is plan until it has struck its first fault; from then on everything
// passes. The next connection of a client that tries again is whole.
func Once(plan Plan) Plan {
	struck := false
	return func(c Chunk) Verdict {
		if struck {
			return Verdict{}
		}
		v := plan(c)
		struck = v.Fault != None
		return v
	}
}

// onSequence finds seq in dir, also across chunks. strike gets its place in the
// chunk where it ends; start is negative if it began in an earlier one.
func onSequence(dir Direction, seq string, strike func(start, end int) Verdict) Plan {
	tails := map[int][]byte{} // connection → its last bytes, one fewer than seq
	return func(c Chunk) Verdict {
		if c.Dir != dir {
			return Verdict{}
		}
		tail := tails[c.Conn]
		seen := append(tail[:len(tail):len(tail)], c.Data...)
		if at := bytes.Index(seen, []byte(seq)); at >= 0 {
			return strike(at-len(tail), at-len(tail)+len(seq))
		}
		tails[c.Conn] = seen[max(0, len(seen)-len(seq)+1):]
		return Verdict{}
	}
}

func among(dirs []Direction) (set [2]bool) {
	if len(dirs) == 0 {
		return [2]bool{true, true}
	}
	for _, d := range dirs {
		set[d] = true
	}
	return set
}

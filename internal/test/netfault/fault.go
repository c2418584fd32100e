package netfault

// Direction is the way that bytes travel through the proxy.
type Direction uint8

const (
	// ToServer is the way of requests.
	ToServer Direction = iota
	// ToClient is the way of replies.
	ToClient
)

// String names the direction for messages.
func (d Direction) String() string {
	if d == ToServer {
		return "to server"
	}
	return "to client"
}

// Fault says how a connection fails.
type Fault uint8

const (
	// None: it does not.
	None Fault = iota
	// Cut closes both sides. Each peer receives what has passed and then an end
	// of stream, or a reset if it was still sending.
	Cut
	// Reset closes both sides with RST. Each peer gets "connection reset".
	Reset
	// HalfClose ends one direction: its receiver sees the end of the stream, its
	// sender sees nothing, and the other direction goes on.
	HalfClose
	// Discard is a black hole: this direction is read and thrown away until the
	// connection ends. The bytes are lost; [Proxy.Heal] does not bring them back.
	Discard
	// Stall stops reading this direction, so that the sender's buffers fill up.
	// As after a real partition, the bytes arrive late when [Proxy.Heal] is called.
	Stall
)

// String names the fault for messages.
func (f Fault) String() string {
	switch f {
	case None:
		return "none"
	case Cut:
		return "cut"
	case Reset:
		return "reset"
	case HalfClose:
		return "half-close"
	case Discard:
		return "discard"
	case Stall:
		return "stall"
	default:
		return "unknown fault"
	}
}

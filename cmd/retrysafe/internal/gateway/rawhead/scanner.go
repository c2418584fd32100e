package rawhead

import "bytes"

// A place is where in a message a scanner is.
type place uint8

const (
	inRequestLine place = iota
	inHeaders
	inData
	inChunkSize
	inChunkEnd
	inTrailers
)

const (
	// maxExtensions bounds the chunk extensions of one body, and maxTrailers its
	// trailers. net/http has bounds of its own behind them, and finds its way back
	// to the next head only within those.
	maxExtensions = 1 << 10
	maxTrailers   = 4 << 10
	// keptPart is how much room for a split line stays with a connection.
	keptPart = 1 << 10
)

// A scanner follows the messages of one connection. It is given each byte once,
// in pieces of any size, and what it finds does not depend on the pieces: lines
// are judged when they are whole.
type scanner struct {
	opts *Options
	at   place
	head head
	room int    // bytes that the head, the chunk's line or the trailers may still have
	data int64  // bytes of the body, or of its chunk, that are still to come
	ext  int    // bytes of chunk extensions that the body may still have
	part []byte // the beginning of a line that is not whole yet

	requests int // whose heads are whole
	// switching says that the latest of them asks for another protocol.
	switching bool
	// serving says, once there is an offence, that it is inside the body of a
	// request whose head was let through.
	serving bool
}

func newScanner(o *Options) scanner { return scanner{opts: o, room: o.MaxHead} }

// between says that the last message is whole and the next has not begun.
func (s *scanner) between() bool { return s.at == inRequestLine && s.room == s.opts.MaxHead }

// scan takes p as the next bytes of the connection and says how many of them may
// be let through: all, or, if there is an offence, only what keeps the offending
// message from ever being whole, and none of it if it begins in p. There is no
// scanning after an offence.
func (s *scanner) scan(p []byte) (pass int, why offence) {
	begin := -1 // of the current message in p; -1 is before p
	for i := 0; i < len(p); {
		if s.at == inData {
			n := min(s.data, int64(len(p)-i))
			i += int(n)
			if s.data -= n; s.data == 0 {
				s.endData()
			}
			continue
		}
		if s.between() {
			begin = i
			s.head = head{}
			s.switching = false
		}
		line, end := p[i:], bytes.IndexByte(p[i:], '\n')
		if end >= 0 {
			line = line[:end+1]
		}
		if why = s.take(line, end >= 0); why != "" {
			s.serving = begin < 0 && s.at > inHeaders
			if s.serving {
				return i, why
			}
			return max(begin, 0), why
		}
		i += len(line)
	}
	return len(p), ""
}

// take goes on in a line. One that is not whole must leave room for its end.
func (s *scanner) take(line []byte, whole bool) offence {
	if len(line) > s.room || len(line) == s.room && !whole {
		return s.full()
	}
	s.room -= len(line)
	if whole && len(s.part) == 0 {
		return s.judge(line)
	}
	s.part = append(s.part, line...)
	if !whole {
		return ""
	}
	why := s.judge(s.part)
	if s.part = s.part[:0]; cap(s.part) > keptPart {
		s.part = nil
	}
	return why
}

// judge takes a whole line.
func (s *scanner) judge(line []byte) offence {
	n := len(line) - len("\r\n")
	if n < 0 || line[n] != '\r' {
		return badLineEnd
	}
	line = line[:n]
	switch s.at {
	case inRequestLine:
		s.at = inHeaders
		return s.head.requestLine(line)
	case inHeaders:
		if len(line) == 0 {
			return s.endHead()
		}
		return s.header(line)
	case inChunkSize:
		return s.chunkSize(line)
	case inChunkEnd:
		s.beginChunk() // room for CR LF alone: it was nothing else
		return ""
	default:
		if len(line) == 0 {
			s.endMessage()
			return ""
		}
		return s.trailer(line)
	}
}

// full says what is wrong with a line for which there is no room.
func (s *scanner) full() offence {
	switch s.at {
	case inChunkSize:
		return badChunkLine
	case inChunkEnd:
		return badChunkEnd
	case inTrailers:
		return longTrailers
	default:
		return headTooLarge
	}
}

func (s *scanner) endMessage() {
	s.at, s.room = inRequestLine, s.opts.MaxHead
}

package rawhead

// A head is what the lines of a head have said so far about how its message is framed.
type head struct {
	old      bool // HTTP/1.0
	connect  bool
	host     bool
	sized    bool // there is a Content-Length
	size     int64
	chunked  bool
	switches bool // there is an Upgrade
	lines    int
}

// requestLine takes the first line. What the target says is net/http's matter; no byte
// of it may be a space or a line end to any parser.
func (h *head) requestLine(line []byte) offence {
	method := tokenLength(line)
	if method == 0 || method == len(line) || line[method] != ' ' {
		return badRequestLine
	}
	rest := line[method+1:]
	target := visibleLength(rest)
	if target == 0 {
		return badRequestLine
	}
	switch string(rest[target:]) {
	case " HTTP/1.1":
	case " HTTP/1.0":
		h.old = true
	default:
		return badRequestLine
	}
	h.connect = string(line[:method]) == "CONNECT"
	return ""
}

// header takes one header line that is not empty.
func (s *scanner) header(line []byte) offence {
	name, value, why := s.split(line)
	if why != "" {
		return why
	}
	h := &s.head
	switch framingName(name) {
	case none:
	case host:
		if h.host {
			return manyHosts
		}
		h.host = true
	case contentLength:
		if h.sized {
			return manyLengths
		}
		h.sized = true
		return h.length(value)
	case transferEncoding:
		if h.chunked {
			return manyCodings
		}
		h.chunked = true
		if !is(withoutSpaces(value), "chunked") {
			return badCoding
		}
	case upgrade:
		h.switches = true
	case lookalike:
		return badAlias
	}
	return ""
}

// split takes a header or trailer line apart.
func (s *scanner) split(line []byte) (name, value []byte, why offence) {
	if s.head.lines++; s.head.lines > s.opts.MaxLines {
		return nil, nil, tooManyLines
	}
	n := tokenLength(line)
	switch {
	case n == 0 && blank(line[0]):
		return nil, nil, foldedLine
	case n == 0 || n == len(line):
		return nil, nil, badName
	case blank(line[n]):
		return nil, nil, spaceAfterName
	case line[n] != ':':
		return nil, nil, badName
	case !printable(line[n+1:]):
		return nil, nil, badControl
	}
	return line[:n], line[n+1:], ""
}

// maxDigits keeps a length, and a chunk's size, far from what overflows.
const maxDigits = 15

func (h *head) length(value []byte) offence {
	digits := withoutSpaces(value)
	if len(digits) == 0 || len(digits) > maxDigits {
		return badLength
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return badLength
		}
		h.size = h.size*10 + int64(d-'0')
	}
	return ""
}

// endHead takes the empty line, at which the head must make sense as a whole.
func (s *scanner) endHead() offence {
	h := &s.head
	switch {
	case !h.old && !h.host:
		return noHost
	case h.chunked && h.sized:
		return lengthAndCoding
	case h.chunked && h.old:
		return oldCoding
	case h.connect, h.switches && !s.opts.Upgrades:
		return badUpgrade
	}
	s.requests++
	s.switching = h.switches
	switch {
	case h.chunked:
		s.ext = maxExtensions
		s.beginChunk()
	case h.size > 0:
		s.at, s.data = inData, h.size
	default:
		s.endMessage()
	}
	return ""
}

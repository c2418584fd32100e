package rawhead

// beginChunk expects the line with a chunk's size.
func (s *scanner) beginChunk() {
	s.at, s.room = inChunkSize, maxDigits+s.ext+len("\r\n")
}

// chunkSize takes the line before a chunk: its size in hexadecimal digits, and
// extensions, which are ignored and only bounded.
func (s *scanner) chunkSize(line []byte) offence {
	size, n := int64(0), 0
	for ; n < len(line) && hexValue[line[n]] >= 0; n++ {
		if n == maxDigits {
			return badChunkLine
		}
		size = size<<4 | int64(hexValue[line[n]])
	}
	extensions := line[n:]
	switch {
	case n == 0, len(extensions) > 0 && extensions[0] != ';':
		return badChunkLine
	case len(extensions) > s.ext || !printable(extensions):
		return badChunkLine
	}
	s.ext -= len(extensions)
	if size == 0 {
		s.at, s.room = inTrailers, maxTrailers
		return ""
	}
	s.at, s.data = inData, size
	return ""
}

// endData expects what follows the data of a body or of a chunk.
func (s *scanner) endData() {
	if s.head.chunked {
		s.at, s.room = inChunkEnd, len("\r\n")
		return
	}
	s.endMessage()
}

// trailer takes one trailer line. It is too late to say how the message is framed
// or where it goes.
func (s *scanner) trailer(line []byte) offence {
	name, _, why := s.split(line)
	if why == "" && framingName(name) != none {
		return badTrailer
	}
	return why
}

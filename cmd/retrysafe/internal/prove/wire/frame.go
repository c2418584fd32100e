package wire

import (
	"encoding/binary"
	"io"
)

// Frames of HTTP/2.
const (
	frameData         = 0
	frameHeaders      = 1
	framePriority     = 2
	frameReset        = 3
	frameSettings     = 4
	framePush         = 5
	framePing         = 6
	frameGoAway       = 7
	frameWindow       = 8
	frameContinuation = 9

	flagEndStream  = 1
	flagAck        = 1
	flagEndHeaders = 4
	flagPadded     = 8
)

// Error codes of HTTP/2.
const (
	codeNone     = 0
	codeProtocol = 1
	codeInternal = 2
	codeRefused  = 7
	codeCancel   = 8
	codeCalm     = 11
)

const (
	preface   = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	frameHead = 9
)

// A frame is one of HTTP/2, right or wrong.
type frame struct {
	kind, flags byte
	stream      uint32
	payload     []byte
}

// appendTo appends the frame's bytes.
func (f frame) appendTo(b []byte) []byte {
	b = append(b, byte(len(f.payload)>>16), byte(len(f.payload)>>8), byte(len(f.payload)), f.kind, f.flags)
	b = binary.BigEndian.AppendUint32(b, f.stream)
	return append(b, f.payload...)
}

// readFrame reads the next one.
func readFrame(r io.Reader) (f frame, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return f, err
	}
	f = frame{kind: head[3], flags: head[4], stream: binary.BigEndian.Uint32(head[5:])}
	f.payload = make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	_, err = io.ReadFull(r, f.payload)
	return f, err
}

// goAway says that no stream after last was looked at.
func goAway(last, code uint32) frame {
	return frame{kind: frameGoAway, payload: binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), code)}
}

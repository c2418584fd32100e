package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// writeJSON writes v as one line. Beyond what JSON demands, nothing in it can
// command a terminal: whatever is not printable is escaped.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(visibleJSON(b.Bytes()))
	return err
}

// visibleJSON escapes what JSON lets pass: all that is not ASCII is within strings.
func visibleJSON(line []byte) []byte {
	out := make([]byte, 0, len(line))
	for i := 0; i < len(line); {
		r, size := utf8.DecodeRune(line[i:])
		switch {
		case r == '\n' || r >= ' ' && r < 0x7f || r > 0x7f && !unprintable(r):
			out = append(out, line[i:i+size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += size
	}
	return out
}

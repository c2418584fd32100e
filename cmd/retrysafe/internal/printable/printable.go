// Package printable makes text from outside safe to show. Keys, headers, error
// messages and file names come from clients and providers. Shown as they are, they
// could move a terminal's cursor, forge a line of a log or become a formula of a
// spreadsheet.
//
// Which function to use depends on what the text is:
//
//	Text   a message of ours with foreign parts in it; parts that are quoted stay so
//	Lines  the same for text of several lines, such as a body
//	Value  one foreign value in a log: different values never look the same
//	Name   a scope, a key or a field that readers copy; ParseName reads it back
//	JSON   an encoded JSON text
//	Cell   a cell of a CSV file
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Is reports whether showing r displays one character and does nothing else.
// Control characters, marks that change the direction of writing and characters
// without a width are not printable. Neither is U+FFFD, which decoders return for
// bytes that are not UTF-8.
func Is(r rune) bool { return r != utf8.RuneError && strconv.IsPrint(r) }

// Text returns text with everything escaped that is not printable. Escapes are those
// of Go: \n, \x1b, \u202e.
func Text(text string) string {
	if clean(text, "") {
		return text
	}
	return string(escape(nil, text, ""))
}

// Lines is [Text] for text of several lines. Line breaks stay.
func Lines(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := range lines {
		lines[i] = Text(lines[i])
	}
	return strings.Join(lines, "\n")
}

// Value is [Text] with backslashes escaped, too: a value that contains the two
// characters \n does not look like one that contains a line break.
func Value(text string) string {
	if clean(text, `\`) {
		return text
	}
	return string(escape(nil, text, `\`))
}

// Quoted returns text as it is, or as a quoted string of Go if anything in it needs to
// be escaped.
func Quoted(text string) string {
	if clean(text, `"\`) {
		return text
	}
	return Quote(text)
}

// Quote returns text as a quoted string of Go.
func Quote(text string) string {
	return string(append(escape([]byte{'"'}, text, `"\`), '"'))
}

// Name is [Quoted] for words of a command line: an empty name, one with a space and
// one that could be taken for a flag are quoted as well. [ParseName] is its inverse.
func Name(name string) string {
	if name == "" || name[0] == '-' || !clean(name, `"\ `) {
		return Quote(name)
	}
	return name
}

// ParseName returns the name that [Name] returned text for. Text that is not a quoted
// string is returned as it is.
func ParseName(text string) string {
	if len(text) >= 2 && text[0] == '"' {
		if name, err := strconv.Unquote(text); err == nil {
			return name
		}
	}
	return text
}

// JSON returns encoded JSON with everything escaped that JSON permits and that is not
// printable. All of that is inside of strings. Line breaks, which separate values,
// stay.
func JSON(encoded []byte) []byte {
	out := make([]byte, 0, len(encoded))
	for len(encoded) > 0 {
		r, size := utf8.DecodeRune(encoded)
		switch {
		case r == '\n' || Is(r):
			out = append(out, encoded[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		encoded = encoded[size:]
	}
	return out
}

// Cell returns printable text such that no spreadsheet takes it for a formula. A lone
// dash, which stands for an empty cell, stays as it is.
func Cell(text string) string {
	if text != "-" && IsFormula(text) {
		return "'" + text
	}
	return text
}

// IsFormula reports whether a spreadsheet may take text for a formula, because of the
// character that it begins with.
func IsFormula(text string) bool {
	first, _ := utf8.DecodeRuneInString(text)
	return text != "" && strings.ContainsRune("=+-@\t\r＝＋－＠", first)
}

// Cut returns the first bytes of text, at most as many as given, and an ellipsis if
// there are more. It does not cut a character in two.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// clean reports whether text is printable and has none of the special characters.
func clean(text, special string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' {
			if strings.ContainsFunc(text[i:], func(r rune) bool { return !Is(r) }) {
				return false
			}
			break
		}
	}
	return special == "" || !strings.ContainsAny(text, special)
}

// escape appends text. Quotes and backslashes are escaped if they are among the
// special characters; other special characters stay.
func escape(to []byte, text, special string) []byte {
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			to = fmt.Appendf(to, `\x%02x`, text[0])
		case !Is(r):
			to = append(to, strings.Trim(strconv.QuoteRuneToASCII(r), "'")...)
		case strings.ContainsRune(special, r):
			to = append(to, '\\', text[0])
		default:
			to = append(to, text[:size]...)
		}
		text = text[size:]
	}
	return to
}

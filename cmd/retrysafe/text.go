package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Whatever comes from a store was written by somebody else: a key can hold what
// would command a terminal. So nothing is printed that has not passed through one
// of these.

// visible returns text with whatever is not printable escaped as in Go: control
// characters, bytes that are no UTF-8, marks that reverse the direction of writing.
func visible(text string) string {
	if !strings.ContainsFunc(text, unprintable) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case unprintable(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

// unprintable includes U+FFFD, which stands for bytes that are no UTF-8.
func unprintable(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }

// visibleLines is visible for text of several lines.
func visibleLines(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := range lines {
		lines[i] = visible(lines[i])
	}
	return strings.Join(lines, "\n")
}

// named returns a scope or a key such that no two look the same and [unnamed] gets
// it back: as it is, or quoted as in Go where it has anything special or could be
// taken for a flag.
func named(text string) string {
	if text == "" || text[0] == '-' || strings.ContainsFunc(text, func(r rune) bool {
		return unprintable(r) || r == '"' || r == '\\' || r == ' '
	}) {
		return strconv.Quote(text)
	}
	return text
}

// unnamed is the inverse of named, for what people copy from the output. What is
// not quoted is taken as it is.
func unnamed(text string) string {
	if len(text) >= 2 && text[0] == '"' {
		if plain, err := strconv.Unquote(text); err == nil {
			return plain
		}
	}
	return text
}

// word returns text as one word of a shell's command line.
func word(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+,=", r)
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// clipped returns the beginning of text, if it is longer than most characters.
func clipped(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// many returns a count with its noun, and thousands apart.
func many(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + more
}

// grouped returns n with commas between thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return sign + digits
}

package listener

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxText bounds what a client may put into a line of the log.
const maxText = 512

// printable returns a text that does nothing to whoever reads it: control bytes, ANSI
// escapes, marks that turn the direction of writing and bytes that are no UTF-8 are
// spelled out, and it is cut at most bytes.
func printable(s string, most int) string {
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s = s[:most] + "…"
	}
	if plain(s) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return true
}

package listener

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxText bounds what a client may put into a line of the log.
const maxText = 512

// printable returns s so that it can be printed safely: control bytes, ANSI escapes,
// marks that change the direction of text and bytes that are not UTF-8 are escaped, and
// it is cut at most bytes.
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

package terminal

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ShellWord returns text as one word of a shell's command line.
func ShellWord(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+,=", r)
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Clip returns text, or its beginning and an ellipsis if it has more characters than
// most.
func Clip(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// Wrap breaks text into lines of at most width characters.
func Wrap(text string, width int) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		switch n := utf8.RuneCountInString(word); {
		case i == 0:
			at = n
		case at+1+n > width:
			b.WriteByte('\n')
			at = n
		default:
			b.WriteByte(' ')
			at += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}

// OrDash returns text, or a dash in place of none.
func OrDash(text string) string { return cmp.Or(text, "-") }

// Count returns a number with its noun: "1 key", "2,000 keys".
func Count[N ~int | ~int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Number(n) + " " + many
}

// Number returns n with commas between thousands.
func Number[N ~int | ~int64 | ~uint64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return sign + digits
}

// An Option is a command that a person may run next, and when it is the right one.
type Option struct{ When, Command string }

// WriteOptions writes what the state of a thing means, and the commands that may be
// run next.
func WriteOptions(w io.Writer, means string, options []Option) {
	fmt.Fprintf(w, "\n%s\n", Wrap(means, 88))
	if len(options) > 0 {
		fmt.Fprintln(w, "\nWhat you may do:")
	}
	for _, o := range options {
		fmt.Fprintf(w, "\n  # %s\n  %s\n", o.When, o.Command)
	}
}

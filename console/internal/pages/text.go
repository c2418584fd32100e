package pages

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// visible returns text with everything escaped that is not one printable character, as Go
// writes it: \n, \x1b, \u202e. HTML would show those as nothing, or would let them change
// the direction of the text around them.
func visible(text string) string {
	if clean(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case r == utf8.RuneError || !strconv.IsPrint(r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
		text = text[n:]
	}
	return b.String()
}

func clean(text string) bool {
	for _, r := range text {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}

// visibleLines is visible for text of several lines.
func visibleLines(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := range lines {
		lines[i] = visible(strings.ReplaceAll(lines[i], "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// clip returns the beginning of a text that is too long for a cell.
func clip(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

// span returns a duration in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}

// nearest rounds a duration to the unit in which span shows it, so that what was to last a
// day is not 23 hours a moment later.
func nearest(d time.Duration) time.Duration {
	switch {
	case d < 10*time.Second:
		return d
	case d < 2*time.Minute:
		return d.Round(time.Second)
	case d < 2*time.Hour:
		return d.Round(time.Minute)
	case d < 48*time.Hour:
		return d.Round(time.Hour)
	default:
		return d.Round(24 * time.Hour)
	}
}

// number returns n with its thousands separated.
func number[N int | int64](n N) string {
	text := strconv.FormatInt(int64(n), 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// count returns a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + many
}

// A moment is a time on a page: how far it is from now, and exactly.
type moment struct {
	Rel, Exact, Machine string
}

// never is how far in the future a deadline is that never comes.
const never = 30 * 365 * 24 * time.Hour

// when returns a time relative to the store's clock at the moment it was read.
func when(t, now time.Time) moment {
	if t.IsZero() {
		return moment{Rel: "–"}
	}
	m := moment{Exact: t.UTC().Format("2006-01-02 15:04:05.000 UTC"), Machine: t.UTC().Format(time.RFC3339Nano)}
	switch d := now.Sub(t); {
	case d > -time.Second && d < time.Second:
		m.Rel = "now"
	case d < -never:
		m.Rel = "never"
	case d < 0:
		m.Rel = "in " + span(nearest(-d))
	default:
		m.Rel = span(d) + " ago"
	}
	return m
}

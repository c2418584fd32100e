package conform

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const maxShown = 4096 // bytes of a body that a report has

var secretName = regexp.MustCompile(`(?i)^(authorization|proxy-authorization|cookie|set-cookie)$|token|secret|api-?key|password|credential|signature`)

// isSecret reports whether the value of a header is not to be shown.
func isSecret(name string) bool { return secretName.MatchString(name) }

// hides reports whether the value of a header of the request is not to be shown.
func (m *message) hides(name string) bool {
	_, ok := m.hidden[http.CanonicalHeaderKey(name)]
	return ok || isSecret(name)
}

// text returns the request as it is written, without credentials.
func (m *message) text() string {
	shown := *m
	shown.lines = slices.Clone(m.lines)
	for i, l := range shown.lines {
		if m.hides(l[0]) {
			shown.lines[i][1] = "(hidden)"
		}
	}
	return strings.ReplaceAll(string(shown.head()), "\r\n", "\n") + shownBody(m.body)
}

// text returns the answer as it was read, without credentials.
func (a *answer) text() string {
	if a.err != nil {
		return "(" + a.err.Error() + ")"
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %s\n", a)
	names := make([]string, 0, len(a.header))
	for name := range a.header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range a.header[name] {
			if isSecret(name) {
				v = "(hidden)"
			}
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	b.WriteString("\n" + shownBody(a.body))
	return b.String()
}

func shownBody(body []byte) string {
	if !utf8.Valid(body) {
		return fmt.Sprintf("(%d bytes that are no text)", len(body))
	}
	if len(body) > maxShown {
		return strings.ToValidUTF8(string(body[:maxShown]), "") + fmt.Sprintf("… (%d bytes)", len(body))
	}
	return string(body)
}

// exchanges returns the wire log of a trial. A request that was repeated until it had an
// answer is shown as the first and the last time it was sent.
func exchanges(log []*answer) (all []Exchange) {
	for i, a := range log {
		if i > 0 && i < len(log)-1 && log[i-1].step == a.step && log[i+1].step == a.step && a.step == "again" {
			continue
		}
		all = append(all, Exchange{Step: a.step, Sent: a.sent.text(), Received: a.text(), Took: a.took, Curl: a.sent.curl()})
	}
	return all
}

var notVariable = regexp.MustCompile(`[^A-Z0-9]+`)

// curl returns a command that sends the request again.
func (m *message) curl() string {
	words := []string{"curl", "-i", "-X", m.method}
	if m.hangUp > 0 {
		words = append(words, "--max-time", fmt.Sprintf("%.2f", m.hangUp.Seconds()))
	}
	for _, l := range m.lines {
		switch {
		case m.hides(l[0]):
			words = append(words, "-H", `"`+l[0]+": $"+notVariable.ReplaceAllString(strings.ToUpper(l[0]), "_")+`"`)
		case l[1] == "":
			words = append(words, "-H", shellWord(l[0]+";")) // how curl sends a header without a value
		default:
			words = append(words, "-H", shellWord(l[0]+": "+l[1]))
		}
	}
	if m.cut > 0 {
		words = append(words, "-H", shellWord(fmt.Sprintf("Content-Length: %d", len(m.body))), "--max-time", "1")
	}
	if len(m.body) > 0 && utf8.Valid(m.body) {
		body := m.body
		if m.cut > 0 {
			body = body[:m.cut]
		}
		words = append(words, "--data-binary", shellWord(string(body)))
	} else if m.method != http.MethodGet {
		words = append(words, "-d", "''")
	}
	return strings.Join(append(words, shellWord(m.url.String())), " ")
}

// shellWord returns text as one word of a shell's command line.
func shellWord(text string) string {
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return "$'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "\x01", `\x01`).Replace(text) + "'"
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

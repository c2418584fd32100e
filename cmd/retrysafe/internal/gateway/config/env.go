package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// variable is ${NAME} or ${NAME:-default}; in a default $$ is a dollar, and there
// is no other.
var variable = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)(:-((?:[^$}]|\$\$)*))?\}`)

// errUnset says that a variable is not set.
var errUnset = errors.New("the environment has no")

// soleReference reports whether a text is ${NAME} and nothing else.
func soleReference(text string) bool {
	m := variable.FindStringSubmatch(text)
	return m != nil && m[0] == text && m[2] == ""
}

// expand fills in variables of the environment. What they hold stays text, also
// if it looks like YAML or like a variable. A dollar is written $$; one that
// could not be mistaken for the beginning of a name may stand alone.
func expand(text string, env func(string) (string, bool)) (out string, changed bool, err error) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "$")
		b.WriteString(before)
		if !ok {
			return b.String(), changed, nil
		}
		switch {
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "{"):
			m := variable.FindStringSubmatch("$" + rest)
			if m == nil {
				return "", false, fmt.Errorf("%s: a variable is ${NAME} or ${NAME:-default}, where NAME has letters, digits and underscores; a dollar is $$", quote("$"+rest))
			}
			v, ok := "", false
			if env != nil {
				v, ok = env(m[1])
			}
			switch {
			case m[2] != "" && v == "":
				v = strings.ReplaceAll(m[3], "$$", "$")
			case !ok:
				return "", false, fmt.Errorf("%w %s; set it, or give a default: ${%s:-…}", errUnset, m[1], m[1])
			}
			b.WriteString(v)
			text, changed = rest[len(m[0])-1:], true
		case rest != "" && beginsName(rest[0]):
			return "", false, fmt.Errorf("%s: a variable is written ${NAME}, a dollar $$", quote("$"+rest))
		default:
			b.WriteByte('$')
			text = rest
		}
	}
}

// dollars writes a text such that expand returns it.
func dollars(text string) string {
	var b strings.Builder
	for i := range len(text) {
		b.WriteByte(text[i])
		if text[i] == '$' && i+1 < len(text) && (text[i+1] == '$' || text[i+1] == '{' || beginsName(text[i+1])) {
			b.WriteByte('$')
		}
	}
	return b.String()
}

func beginsName(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' }

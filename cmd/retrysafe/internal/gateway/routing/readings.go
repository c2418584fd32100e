package routing

import (
	"slices"
	"strings"
)

const (
	// maxRead bounds the length of a path that is read in several ways, and maxReadings
	// how many there may be. A path beyond either may mean anything.
	maxRead     = 4 << 10
	maxReadings = 64
)

// isPlain reports whether every server reads a path in the same way: nothing of it is
// escaped, no segment is empty or begins with a dot, and it has no parameters and no
// backslash. That is so for nearly every request.
func isPlain(path string) bool {
	if path == "" {
		return true
	}
	if path[0] != '/' {
		return false
	}
	for i := 0; i < len(path); i++ {
		switch c := path[i]; c {
		case '%', ';', '\\', '?', '#':
			return false
		case '/':
			if i+1 < len(path) && (path[i+1] == '/' || path[i+1] == '.') {
				return false
			}
		default:
			if c <= ' ' || c >= 0x7f {
				return false
			}
		}
	}
	return true
}

// readings returns the paths that servers, or several of them in a row, may make of a
// path, itself first: each step of [steps], in any order, as often as it changes
// something. If ok is false there are more of them than are known.
func readings(path string) (found []string, ok bool) {
	if len(path) > maxRead || !strings.HasPrefix(path, "/") {
		return []string{path}, false
	}
	found, ok = []string{path}, true
	for i := 0; i < len(found); i++ {
		if isOdd(found[i]) {
			return found, false
		}
		for _, step := range steps {
			next, certain := step(found[i])
			if !certain {
				ok = false
			}
			if next == "" {
				next = "/"
			}
			if slices.Contains(found, next) {
				continue
			}
			if len(found) == maxReadings {
				return found, false
			}
			found = append(found, next)
		}
	}
	return found, ok
}

// steps are what servers do to a path before they look up what it is about. Each returns
// false if servers disagree about the result.
var steps = []func(path string) (next string, certain bool){
	decode, resolve, merge, turnBackslashes, dropParameters, cutParameters, cutQuery, dropAuthority, foldWidth,
}

// decode decodes what is escaped, once; a second time it decodes what was escaped twice.
func decode(path string) (string, bool) {
	if strings.IndexByte(path, '%') < 0 {
		return path, true
	}
	b := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		if path[i] == '%' && i+2 < len(path) {
			if high, low := hexValue(path[i+1]), hexValue(path[i+2]); high >= 0 && low >= 0 {
				b = append(b, byte(high<<4|low))
				i += 2
				continue
			}
		}
		b = append(b, path[i])
	}
	return string(b), true
}

func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// resolve resolves dot segments, their dots escaped or not. Servers disagree about those
// that lead above the root.
func resolve(path string) (string, bool) {
	if strings.IndexByte(path, '.') < 0 && !strings.Contains(path, "%2") {
		return path, true
	}
	parts, certain := strings.Split(path[1:], "/"), true
	kept := parts[:0]
	for i, part := range parts {
		last := i == len(parts)-1
		switch dots(part) {
		case 1:
		case 2:
			if len(kept) == 0 {
				certain = false
			} else {
				kept = kept[:len(kept)-1]
			}
		default:
			kept = append(kept, part)
			continue
		}
		if last {
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/"), certain
}

// dots returns 1 for the segment of this folder, 2 for that of the one above, else 0.
func dots(part string) int {
	n := 0
	for part != "" {
		switch {
		case part[0] == '.':
			part = part[1:]
		case len(part) >= 3 && part[:2] == "%2" && part[2]|0x20 == 'e':
			part = part[3:]
		default:
			return 0
		}
		n++
	}
	if n > 2 {
		return 0
	}
	return n
}

// merge makes one of several slashes in a row.
func merge(path string) (string, bool) {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path, true
}

var backslashes = strings.NewReplacer(`\`, "/", "%5c", "/", "%5C", "/")

// turnBackslashes takes backslashes for slashes.
func turnBackslashes(path string) (string, bool) { return backslashes.Replace(path), true }

// parameter returns where the parameters of a segment begin, or of a path, or -1.
func parameter(text string) int {
	for i := range len(text) {
		if text[i] == ';' || strings.HasPrefix(text[i:], "%3b") || strings.HasPrefix(text[i:], "%3B") {
			return i
		}
	}
	return -1
}

// dropParameters drops the parameters of each segment.
func dropParameters(path string) (string, bool) {
	if parameter(path) < 0 {
		return path, true
	}
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if at := parameter(part); at >= 0 {
			parts[i] = part[:at]
		}
	}
	return strings.Join(parts, "/"), true
}

// cutParameters cuts a path at its first parameter.
func cutParameters(path string) (string, bool) {
	if at := parameter(path); at >= 0 {
		return path[:at], true
	}
	return path, true
}

// cutQuery cuts what looks like a query or a fragment once it is decoded.
func cutQuery(path string) (string, bool) {
	if at := strings.IndexAny(path, "?#"); at >= 0 {
		return path[:at], true
	}
	return path, true
}

// dropAuthority takes what follows two slashes at the beginning for a host, as readers of
// references do.
func dropAuthority(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, "//")
	if !ok {
		return path, true
	}
	if at := strings.IndexByte(rest, '/'); at >= 0 {
		return rest[at:], true
	}
	return "/", true
}

var widths = strings.NewReplacer("\uff0f", "/", "\uff3c", `\`, "\uff0e", ".", "\uff1b", ";", "\uff05", "%")

// foldWidth takes the wide forms of the characters that matter for the narrow ones.
func foldWidth(path string) (string, bool) { return widths.Replace(path), true }

// isOdd reports whether a path has a byte that servers end at, drop or translate in ways
// of their own: a control character, or a character in more bytes of UTF-8 than it needs.
func isOdd(path string) bool {
	for i := range len(path) {
		c, next := path[i], byte(0xff)
		if i+1 < len(path) {
			next = path[i+1]
		}
		follows := next >= 0x80 && next < 0xc0
		if c < ' ' || c == 0x7f || follows && (c == 0xc0 || c == 0xc1 || c == 0xe0 && next < 0xa0 || c == 0xf0 && next < 0x90) {
			return true
		}
	}
	return false
}

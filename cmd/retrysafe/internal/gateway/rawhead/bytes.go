package rawhead

// A framing is a header that says where a message ends or goes.
type framing uint8

const (
	none framing = iota
	host
	contentLength
	transferEncoding
	upgrade
	// lookalike is one that becomes a length or a coding where underscores and
	// hyphens are the same, as in CGI.
	lookalike
)

func framingName(name []byte) framing {
	switch len(name) {
	case len("host"):
		if is(name, "host") {
			return host
		}
	case len("upgrade"):
		if is(name, "upgrade") {
			return upgrade
		}
	case len("content-length"):
		return hyphened(name, "content-length", len("content"), contentLength)
	case len("transfer-encoding"):
		return hyphened(name, "transfer-encoding", len("transfer"), transferEncoding)
	}
	return none
}

// hyphened returns f if name is word, and lookalike if it has an underscore for
// word's hyphen.
func hyphened(name []byte, word string, hyphen int, f framing) framing {
	if !is(name[:hyphen], word[:hyphen]) || !is(name[hyphen+1:], word[hyphen+1:]) {
		return none
	}
	switch name[hyphen] {
	case '-':
		return f
	case '_':
		return lookalike
	default:
		return none
	}
}

// is compares with a word of lower-case letters, whatever the case of b's.
func is(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i := range b {
		if b[i]|0x20 != word[i] {
			return false
		}
	}
	return true
}

// withoutSpaces cuts the spaces that may precede a value, and nothing else.
func withoutSpaces(value []byte) []byte {
	for len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	return value
}

func blank(b byte) bool { return b == ' ' || b == '\t' }

var token = func() (t [256]bool) {
	for c := '0'; c <= 'z'; c++ {
		t[c] = c <= '9' || c >= 'a' || c >= 'A' && c <= 'Z'
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] = true
	}
	return t
}()

var hexValue = func() (v [256]int8) {
	for c := range v {
		v[c] = -1
	}
	for i, c := range "0123456789abcdef" {
		v[c] = int8(i)
	}
	for i, c := range "ABCDEF" {
		v[c] = int8(10 + i)
	}
	return v
}()

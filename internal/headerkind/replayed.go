package headerkind

import (
	"errors"
	"strings"
)

// CheckReplayed reports why a header cannot be part of a stored answer: its name or value is
// not valid in HTTP, or the header is never replayed. The name is canonical.
func CheckReplayed(name, value string) error {
	switch {
	case name == "" || strings.ContainsFunc(name, notInName):
		return errors.New("this is not the name of a header")
	case strings.ContainsFunc(value, notInValue):
		return errors.New("the value contains a control character")
	case IsPerExchange(name):
		return errors.New("it belongs to one exchange and is never replayed")
	}
	return nil
}

// notInName reports whether r cannot be in a token of RFC 9110.
func notInName(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// notInValue reports whether r is a control character other than a tab.
func notInValue(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// Package replayheader says which response headers a stored answer may carry. The
// wire, operators and resolvers ask it, so that all of them agree.
package replayheader

import (
	"errors"
	"net/http"
	"strings"
)

// never are the headers that belong to one exchange, one session or one caller.
var never = canonical(
	"Set-Cookie", "Authorization", "Proxy-Authenticate", "Proxy-Authorization", "WWW-Authenticate", "Authentication-Info",
	"Date", "Age", "Connection", "Keep-Alive", "Proxy-Connection", "TE", "Transfer-Encoding", "Upgrade", "Content-Length", "Trailer",
)

func canonical(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[http.CanonicalHeaderKey(name)] = true
	}
	return set
}

// Never reports whether the header is never stored and never replayed, whatever an
// allow-list says. The name is canonical: see [http.CanonicalHeaderKey].
func Never(name string) bool { return never[name] }

// Check reports why a header cannot be part of a stored answer: its name or value is
// not valid in HTTP, or the header is never replayed. The name is canonical.
func Check(name, value string) error {
	switch {
	case name == "" || strings.ContainsFunc(name, notInName):
		return errors.New("this is not the name of a header")
	case strings.ContainsFunc(value, notInValue):
		return errors.New("the value contains a control character")
	case Never(name):
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

// Package headerkind knows the headers that do not outlive a connection or an exchange.
// Each place that refuses, removes or does not store such headers asks here, and adds
// only names of its own.
//
// Names are canonical, as [net/http.CanonicalHeaderKey] has them.
package headerkind

// IsHop reports whether a header is about one connection: a proxy does not pass it on,
// and an application has no say in it. These are the fields of RFC 9110, section 7.6.1,
// those of a proxy's own authentication, and Trailer.
func IsHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// IsPerExchange reports whether a header of an answer belongs to one exchange, one
// session or one caller: it is never stored, and never replayed to another request. All
// hop-by-hop headers are among them, and those of [IsGuards].
func IsPerExchange(name string) bool {
	switch name {
	case "Set-Cookie", "Authorization", "Www-Authenticate", "Authentication-Info", "Date", "Age", "Content-Length":
		return true
	}
	return IsHop(name) || IsGuards(name)
}

// IsGuards reports whether a header of an answer is a guard's statement about that answer.
// A handler or a service behind a guard has no say in it: a 5xx that claims to be a replay
// would pass for final.
func IsGuards(name string) bool {
	return name == "Idempotent-Replayed" || name == "Idempotency-Expires"
}

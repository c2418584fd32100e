package http1

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
)

var (
	errMethod = errors.New("the method of the request is not one")
	errTarget = errors.New("the target of the request has a space or a control character")
	errHost   = errors.New("the host of the request is not one")
	errName   = errors.New("the name of a header of the request is not one")
	errValue  = errors.New("the value of a header of the request has a control character")
)

// appendHead appends the head of a request as [http.Request.Write] would write it. What
// that would repair or leave out is an error: then nothing is sent.
func appendHead(b []byte, r *http.Request, length int64) (_ []byte, err error) {
	if !isToken(r.Method) {
		return b, errMethod
	}
	b = append(b, r.Method...)
	b = append(b, ' ')
	from := len(b)
	b = appendTarget(b, r)
	for _, c := range b[from:] {
		if c <= ' ' || c == 0x7f {
			return b, errTarget
		}
	}
	b = append(b, " HTTP/1.1\r\nHost: "...)
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	for i := range len(host) {
		if bytesOf[host[i]]&hostByte == 0 {
			return b, errHost
		}
	}
	b = append(b, withoutZone(host)...)
	b = append(b, '\r', '\n')
	switch {
	case length > 0:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, length, 10)
		b = append(b, '\r', '\n')
	case length < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch: // servers expect it
		b = append(b, "Content-Length: 0\r\n"...)
	}
	if r.Close {
		b = append(b, "Connection: close\r\n"...)
	}
	for name, values := range r.Header {
		switch {
		case isFraming(name):
			continue
		case name == "User-Agent" && len(values) > 0:
			if values = values[:1]; values[0] == "" {
				continue
			}
		case !isToken(name):
			return b, errName
		}
		for _, value := range values {
			b = append(b, name...)
			b = append(b, ':', ' ')
			if b, err = appendValue(b, value); err != nil {
				return b, err
			}
			b = append(b, '\r', '\n')
		}
	}
	return append(b, '\r', '\n'), nil
}

// appendTarget appends what [url.URL.RequestURI] returns.
func appendTarget(b []byte, r *http.Request) []byte {
	u := r.URL
	target := u.Opaque
	if target == "" {
		if target = u.EscapedPath(); target == "" {
			target = "/"
		}
	} else if strings.HasPrefix(target, "//") {
		b = append(append(b, u.Scheme...), ':')
	}
	b = append(b, target...)
	if u.ForceQuery || u.RawQuery != "" {
		b = append(append(b, '?'), u.RawQuery...)
	}
	return b
}

// withoutZone returns a host without the zone of an IPv6 address, which means nothing to
// the server.
func withoutZone(host string) string {
	if !strings.HasPrefix(host, "[") {
		return host
	}
	end := strings.LastIndexByte(host, ']')
	if end < 0 {
		return host
	}
	zone := strings.LastIndexByte(host[:end], '%')
	if zone < 0 {
		return host
	}
	return host[:zone] + host[end:]
}

// isFraming reports whether a header is written by appendHead itself, however its name is
// written.
func isFraming(name string) bool {
	switch len(name) {
	case len("Host"):
		return strings.EqualFold(name, "Host")
	case len("Content-Length"):
		return strings.EqualFold(name, "Content-Length")
	case len("Transfer-Encoding"):
		return strings.EqualFold(name, "Transfer-Encoding")
	case len("Trailer"):
		return strings.EqualFold(name, "Trailer")
	}
	return false
}

// appendValue appends the value of a header, without the space around it.
func appendValue(b []byte, value string) ([]byte, error) {
	value = strings.Trim(value, " \t")
	for i := range len(value) {
		if bytesOf[value[i]]&valueByte == 0 {
			return b, errValue
		}
	}
	return append(b, value...), nil
}

func isToken(s string) bool {
	for i := range len(s) {
		if bytesOf[s[i]]&tokenByte == 0 {
			return false
		}
	}
	return s != ""
}

// The kinds of bytes.
const (
	tokenByte byte = 1 << iota // of a method, or of the name of a header
	valueByte                  // of the value of a header
	hostByte                   // of a host
)

// bytesOf has the kinds that each byte is of.
var bytesOf = func() (kinds [256]byte) {
	const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	for _, c := range []byte(alphanumeric + "!#$%&'*+-.^_`|~") {
		kinds[c] |= tokenByte
	}
	for _, c := range []byte(alphanumeric + "!$%&'()*+,-.:;=@[]_~") {
		kinds[c] |= hostByte
	}
	for c := range kinds {
		if c >= ' ' && c != 0x7f || c == '\t' {
			kinds[c] |= valueByte
		}
	}
	return kinds
}()

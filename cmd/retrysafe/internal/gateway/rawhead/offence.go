package rawhead

import (
	"errors"
	"fmt"
)

// ErrRefused is what a read of a refused connection returns, in a [net.OpError].
// A handler meets it only where the offence is inside the body that it reads.
var ErrRefused = errors.New("ambiguous request refused")

// An offence is what is wrong with a request, in words for its sender. None of
// them repeats what was sent. No words, no offence.
type offence string

const (
	badRequestLine  offence = "The request line must be a method, a target and HTTP/1.1 or HTTP/1.0, with one space between them."
	badTarget       offence = "The target must be a path that begins with a slash, with visible ASCII characters and no fragment. HTTP/1 may also have a URL, without a user; only OPTIONS may have an asterisk."
	badHost         offence = "The host must be a name or an address, perhaps with a port."
	badLineEnd      offence = "Each line must end in CR LF."
	badControl      offence = "A header has a control character, or a CR that does not end its line."
	badName         offence = "A header name is empty or has a character that names cannot have."
	foldedLine      offence = "A header is folded over several lines."
	spaceAfterName  offence = "There is a space between a header name and its colon."
	noHost          offence = "The Host header is missing or empty."
	manyHosts       offence = "There is more than one Host header."
	badLength       offence = "Content-Length must be one plain decimal number."
	manyLengths     offence = "There is more than one Content-Length header."
	badCoding       offence = "Transfer-Encoding must be chunked and nothing else."
	manyCodings     offence = "There is more than one Transfer-Encoding header."
	oldCoding       offence = "Transfer-Encoding needs HTTP/1.1."
	lengthAndCoding offence = "Transfer-Encoding and Content-Length exclude each other."
	badAlias        offence = "A header name has an underscore where Content-Length or Transfer-Encoding has its hyphen."
	badUpgrade      offence = "This connection stays with HTTP/1. Send neither CONNECT nor an Upgrade header."
	badChunkLine    offence = "A chunk must begin with a plain hexadecimal size, and only short extensions may follow it."
	badChunkEnd     offence = "A chunk must be followed by CR LF."
	badTrailer      offence = "A trailer has a header that belongs before the body."
	longTrailers    offence = "The trailers are too long."
	headTooLarge    offence = "The request line and headers are too large."
	tooManyLines    offence = "There are too many headers."
)

// A refusedError is an [ErrRefused] that says why.
type refusedError struct{ why offence }

func (e refusedError) Error() string { return ErrRefused.Error() + ": " + string(e.why) }

func (e refusedError) Is(target error) bool { return target == ErrRefused }

// problem returns the status of the response to an offence, its text and its body.
// Another sending of the same bytes fares no better; it proves nothing of earlier
// attempts, so that a new key is not safe.
func (o offence) problem() (status int, title, body string) {
	status, title, code := 400, "Bad Request", "request-ambiguous"
	if o == headTooLarge || o == tooManyLines {
		status, title, code = 431, "Request Header Fields Too Large", "head-too-large"
	}
	return status, title, fmt.Sprintf(`{"type":"about:blank","title":%q,"status":%d,"detail":%q,"code":%q,"retryable":false,"safe_new_key":false}`+"\n",
		title, status, string(o), code)
}

// answer is the whole response to an offence, for a connection that then ends.
func (o offence) answer() []byte {
	status, title, body := o.problem()
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\nContent-Language: en\r\n"+
		"Cache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", status, title, len(body), body)
}

// Package rawhead refuses HTTP/1 requests that two readers could read in two ways.
//
// net/http repairs much of what it is sent: a Content-Length beside a
// Transfer-Encoding, folded lines, lines that end in a bare LF, a length said twice. A
// handler cannot see that any more, and a parser with other rules sees other requests
// in the same bytes. [Listen] and [Conn] stand between the network and net/http and
// look at the bytes themselves. They follow each message from its request line to the
// end of its trailers, so that the second head of a kept-alive or pipelined connection
// is looked at as the first is.
//
// An offending head never becomes a request: the bytes that would complete it are
// not let through. Its sender gets a 400 (a 431 if it is too large) as soon as the
// requests before it have been answered, and the connection ends.
package rawhead

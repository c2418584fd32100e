package http1

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strings"
)

// readHead reads the head of an answer.
func (x *exchange) readHead() error {
	in := x.conn.in
	x.conn.socket.left = x.client.o.MaxHead
	x.body.first = x.res == nil
	if in.Buffered() == 0 {
		if _, err := in.Peek(1); err != nil {
			return err
		}
	}
	x.body.first = false
	there, _ := in.Peek(in.Buffered())
	if n := x.parse(there); n > 0 {
		_, _ = in.Discard(n)
		return nil
	}
	res, err := http.ReadResponse(in, x.call.Request) //nolint:bodyclose // the exchange's own body is closed, and its connection with it
	if err != nil {
		return err
	}
	x.res = res
	return nil
}

// parse parses the head of an answer of the usual form and returns its length. It returns 0
// if the head is not whole yet, or has anything that only net/http should make sense of:
// then net/http reads it.
func (x *exchange) parse(in []byte) int {
	const version = "HTTP/1.1 "
	if x.call.Request.Method == http.MethodHead || !bytes.HasPrefix(in, []byte(version)) {
		return 0
	}
	end := bytes.Index(in, []byte("\r\n\r\n"))
	if end < 0 {
		return 0
	}
	head := string(in[:end+2]) // each line with its end
	line, rest, ok := cutLine(head)
	if !ok {
		return 0
	}
	status := parseStatus(line[len(version):])
	if status == 0 {
		return 0
	}
	x.own = http.Response{
		Status: line[len(version):], StatusCode: status, Proto: version[:len(version)-1], ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: -1, Header: x.header, Request: x.call.Request,
	}
	if x.header == nil {
		x.header = make(http.Header, 16)
		x.own.Header = x.header
	}
	clear(x.header)
	if !x.parseFields(rest) || x.own.ContentLength < 0 {
		return 0
	}
	x.res = &x.own
	return end + len("\r\n\r\n")
}

// cutLine returns the first line, without its end, and the rest. It reports false if a line
// has a carriage return elsewhere.
func cutLine(text string) (line, rest string, ok bool) {
	i := strings.IndexByte(text, '\r')
	if i+1 >= len(text) || text[i+1] != '\n' {
		return "", "", false
	}
	return text[:i], text[i+2:], true
}

// parseStatus returns the code of a final answer with a body: "200 OK" is 200. It returns 0
// for all others.
func parseStatus(text string) int {
	if len(text) < 3 || len(text) > 3 && text[3] != ' ' || text[0] < '2' || text[0] > '9' || !isDigit(text[1]) || !isDigit(text[2]) || !isValue(text) {
		return 0
	}
	status := 100*int(text[0]-'0') + 10*int(text[1]-'0') + int(text[2]-'0')
	if status == http.StatusNoContent || status == http.StatusNotModified {
		return 0
	}
	return status
}

// parseFields parses the fields of a head. It reports false if net/http has to.
func (x *exchange) parseFields(text string) bool {
	values := make([]string, 0, strings.Count(text, "\n"))
	for text != "" {
		line, rest, ok := cutLine(text)
		if !ok {
			return false
		}
		text = rest
		colon := strings.IndexByte(line, ':')
		if colon <= 0 || !isToken(line[:colon]) {
			return false
		}
		name, value := canonical(line[:colon]), strings.Trim(line[colon+1:], " \t")
		if !isValue(value) {
			return false
		}
		switch name {
		case "Transfer-Encoding", "Trailer", "Pragma": // the framing, or a header, depends on them
			return false
		case "Connection":
			if !strings.EqualFold(value, "keep-alive") {
				return false
			}
		case "Content-Length":
			if x.own.ContentLength >= 0 {
				return false
			}
			if x.own.ContentLength = parseLength(value); x.own.ContentLength < 0 {
				return false
			}
		}
		values = append(values, value)
		if before, ok := x.header[name]; ok {
			x.header[name] = append(before, value)
		} else {
			n := len(values)
			x.header[name] = values[n-1 : n : n]
		}
	}
	return true
}

// parseLength returns a length, or -1 if the text is not one.
func parseLength(text string) (n int64) {
	if text == "" || len(text) > 18 {
		return -1
	}
	for i := range len(text) {
		if !isDigit(text[i]) {
			return -1
		}
		n = 10*n + int64(text[i]-'0')
	}
	return n
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isValue reports whether a text has only bytes that the value of a header may have.
func isValue(s string) bool {
	for i := range len(s) {
		if bytesOf[s[i]]&valueByte == 0 {
			return false
		}
	}
	return true
}

// canonical returns the canonical form of the name of a header.
func canonical(name string) string {
	upper := true
	for i := range len(name) {
		c := name[i]
		if upper && c >= 'a' && c <= 'z' || !upper && c >= 'A' && c <= 'Z' {
			return textproto.CanonicalMIMEHeaderKey(name)
		}
		upper = c == '-'
	}
	return name
}

package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// If a request's body cannot be read, the client has failed and not the service, also
// where no route guards the request and the body is streamed through.
func TestBodyThatBreaksOffIsTheClientsFault(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, body := range []string{"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nno size\r\n", "Transfer-Encoding: chunked\r\n\r\n2\r\nhi, and more\r\n0\r\n\r\n"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, fmt.Sprintf("PUT /broken/%d HTTP/1.1\r\nHost: a\r\n", i)+body)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %s", body, answer.Status)
		}
	}
}

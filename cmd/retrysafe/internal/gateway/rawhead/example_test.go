package rawhead_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/rawhead"
)

// net/http alone would serve this request, by its Transfer-Encoding, and forget
// that it had a Content-Length.
func ExampleListen() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := &http.Server{Handler: http.NotFoundHandler()}
	go srv.Serve(rawhead.Listen(l, nil))
	defer srv.Close()

	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Body.Close()
	var problem struct{ Detail string }
	err = json.NewDecoder(r.Body).Decode(&problem)
	fmt.Println(r.Status, problem.Detail, err)
	// Output: 400 Bad Request Transfer-Encoding and Content-Length exclude each other. <nil>
}

package listener_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
)

// What two parsers could read differently reaches no App: first on a connection, after
// another request, and pipelined behind one, in clear text and over TLS.
func TestW8_AmbiguousFramingIsRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"two framings":      "POST /evil HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":       "POST /evil HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
		"an odd encoding":   "POST /evil HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"a folded line":     "POST /evil HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n 4\r\n\r\nabcd",
		"a smuggled second": "POST /evil HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
	}
	good := "POST /good HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok"
	for name, secure := range map[string]bool{"clear": false, "tls": true} {
		var changes []func(*site, *listener.Options)
		if secure {
			changes = append(changes, withTLS(t))
		}
		s := start(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/good" {
				t.Errorf("%s: the app was given %s", name, r.URL)
			}
			_, _ = io.Copy(w, r.Body)
		}, changes...)
		connect := func() net.Conn {
			if secure {
				return dialTLS(t, s.host(), "http/1.1")
			}
			return dial(t, s.host())
		}
		for what, evil := range cases {
			t.Run(name+"/"+what, func(t *testing.T) {
				for _, before := range []string{"first", "kept alive", "pipelined"} {
					c := connect()
					r := bufio.NewReader(c)
					switch before {
					case "first":
						write(t, c, evil)
					case "kept alive":
						write(t, c, good)
						if res, body := read(t, r); res.StatusCode != 200 || body != "ok" {
							t.Fatalf("got %d %q for a good request", res.StatusCode, body)
						}
						write(t, c, evil)
					case "pipelined":
						write(t, c, good+evil)
						if res, body := read(t, r); res.StatusCode != 200 || body != "ok" {
							t.Fatalf("got %d %q for a good request before an evil one", res.StatusCode, body)
						}
					}
					if res, _ := read(t, r); res.StatusCode != 400 || !res.Close {
						t.Errorf("%s: got %d, close %v, want 400 and the end", before, res.StatusCode, res.Close)
					}
					if err := closed(r); err != nil {
						t.Errorf("%s: %v", before, err)
					}
				}
			})
		}
		if log := s.log.String(); !strings.Contains(log, "request refused") {
			t.Error("refusals are not logged")
		}
	}
}

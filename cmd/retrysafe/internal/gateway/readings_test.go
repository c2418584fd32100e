package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

func turnedOff(s *config.Settings)  { s.Off = true }
func optional(s *config.Settings)   { s.Required = false }
func asItIsSent(s *config.Settings) { s.AmbiguousPaths = config.AmbiguousGuard }

// The base path of a subtree that is off, or needs no key, is not in the subtree: a
// ServeMux would redirect it there.
func TestBasePathOfAnOffSubtreeIsGuarded(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(
		route("POST /payments/{rest...}", turnedOff), route("POST /orders/", optional), route("POST shop.example/x/", turnedOff),
	))
	for _, target := range []string{"/payments", "/orders", "/x"} {
		r := b.request(t, http.MethodPost, target, `{}`, func(r *http.Request) { r.Host = "shop.example" })
		b.do(t, r).refused(t, http.StatusBadRequest, "key-missing")
		if x := b.last(t); x.Route != "default" {
			t.Errorf("%s took the route %q", target, x.Route)
		}
	}
	b.upstream.called(t, 0)
	for _, target := range []string{"/payments/", "/payments/a", "/orders/", "/orders/a"} {
		b.do(t, b.request(t, http.MethodPost, target, `{}`)).is(t, http.StatusCreated, `{"got":{}}`, false)
	}
}

// A path that may be one of two guarded routes is refused, because their settings differ,
// unless the route of the path as it was sent takes such paths.
func TestPathOfTwoGuardedRoutesIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(
		route("POST /payments"), route("POST /files/{name}"), route("POST /projects/{id}/jobs", asItIsSent), route("POST /hooks/{rest...}", turnedOff),
	))
	for _, target := range []string{"/payments;v=2", "//payments", "/files/a%2Fb", "/payments%00", "/hooks/..;/payments", "/%2e%2e/%2e%2e/payments"} {
		b.send(t, http.MethodPost, target, with("Idempotency-Key", key)).refused(t, http.StatusBadRequest, "path-ambiguous")
		if x := b.last(t); x.Code != "path-ambiguous" || x.Status != http.StatusBadRequest || x.Handling != "refused" || x.Path == "" || x.Route == "" || x.Bytes == 0 {
			t.Errorf("told of %+v", x)
		}
	}
	b.upstream.called(t, 0)
	if log := b.log.String(); !strings.Contains(log, `route=default rival="POST /payments"`) || !strings.Contains(log, "ambiguous_paths: guard") {
		t.Errorf("the log does not say which routes, or what to do: %s", log)
	}
	if all := b.records(t); len(all) != 0 {
		t.Errorf("%d records", len(all))
	}
	b.send(t, http.MethodPost, "/projects/a%2Fb/jobs").refused(t, http.StatusBadRequest, "key-missing")
	for _, replayed := range []bool{false, true} {
		b.send(t, http.MethodPost, "/projects/a%2Fb/jobs", with("Idempotency-Key", key)).is(t, http.StatusCreated, `{"got":{}}`, replayed)
	}
	if x := b.last(t); x.Code != "key-missing" {
		t.Errorf("told of %+v", x)
	}
	if x := b.last(t); x.Route != "POST /projects/{id}/jobs" {
		t.Errorf("told of %+v", x)
	}
	for _, target := range []string{"/hooks/a%2Fb", "/hooks/a;b", "/hooks//a", "/hooks/a/./b"} { // still there in every reading
		b.send(t, http.MethodPost, target).is(t, http.StatusCreated, `{"got":{}}`, false)
	}
}

// A path is forwarded in the very form that its route was found by: as it came, or, if it
// has a character that a URL does not allow, decoded and escaped again.
func TestPathsAreForwardedAsTheyAreMatched(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(route("POST /payments"), route("POST /hooks/{rest...}", turnedOff)), answering(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RequestURI)
	}))
	for target, want := range map[string]string{
		"/hooks/a%2Fb?x=%2f": "/hooks/a%2Fb?x=%2f", "/hooks/a;b//c": "/hooks/a;b//c", "/hooks/%61": "/hooks/%61",
		`/hooks/\a`: "/hooks/%5Ca", `/hooks/{a}"`: "/hooks/%7Ba%7D%22", "/hooks/é": "/hooks/%C3%A9", `/hooks/a%2Fb\c`: "/hooks/a/b%5Cc",
	} {
		b.send(t, http.MethodPost, target).is(t, http.StatusOK, want, false)
	}
	for _, target := range []string{`/hooks/\..\payments`, `/hooks/..%2Fpayments?"`, `/hooks/..%2F..%2Fpayments"/../../payments`} {
		if got := b.send(t, http.MethodPost, target); got.status != http.StatusBadRequest {
			t.Errorf("%s got %d %s, want it refused", target, got.status, got.body)
		}
	}
}

// A route that lets requests pass without a key refuses ambiguous paths, whatever its
// settings say of them.
func TestAmbiguousPathsAreOnlyForRoutesThatRequireKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(route("POST /payments"), route("POST /files/{name}", asItIsSent, optional)))
	b.send(t, http.MethodPost, "/files/..%2F..%2Fpayments").refused(t, http.StatusBadRequest, "path-ambiguous")
	b.send(t, http.MethodPost, "/files/a%2Fb").refused(t, http.StatusBadRequest, "path-ambiguous")
	b.upstream.called(t, 0)
}

// If no route enforces anything, an ambiguous path is observed or passed, not refused.
func TestObservedPathsAreNotRefused(t *testing.T) {
	t.Parallel()
	watched := func(s *config.Settings) { s.Observe = true }
	b := setup(t, withRoutes(route("POST /payments", watched), route("POST /hooks/{rest...}", turnedOff)), func(b *bundle) { b.config.Defaults.Off = true })
	for target, want := range map[string]string{"/hooks/..%2Fpayments": "observed", "//payments": "observed", "/hooks/../x": "passed"} {
		b.send(t, http.MethodPost, target).is(t, http.StatusCreated, `{"got":{}}`, false)
		if x := b.last(t); string(x.Handling) != want {
			t.Errorf("%s: told of %+v, want %s", target, x, want)
		}
	}
}

// A list of methods in an override header names each of them.
func TestOverrideThatNamesSeveralMethodsIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, value := range []string{"POST , GET", "GET,POST", "GET POST", `"POST"`, "post;q=1", "GET\tpost"} {
		b.get(t, "/payments", with("X-HTTP-Method-Override", value)).refused(t, http.StatusBadRequest, "method-override")
	}
	b.upstream.called(t, 0)
}

// send sends a target as it is, with a small body.
func (b *bundle) send(t testing.TB, method, target string, change ...func(*http.Request)) *response {
	t.Helper()
	r := b.request(t, method, "", `{}`, change...)
	r.URL.Opaque = target
	if strings.HasPrefix(target, "//") {
		r.URL.Opaque = strings.TrimPrefix(b.url, "http:") + target // a client takes the first slashes for those of a URL
	}
	return b.do(t, r)
}

// servers are models of how Go, nginx and a server in the manner of Tomcat read the path
// of a request line, and of two further readings. No such server takes part in the test.
var servers = map[string]func(path string) string{
	// Go decodes once; a ServeMux cleans what it compares.
	"Go": func(p string) string {
		decoded, err := url.PathUnescape(p)
		if err != nil {
			return ""
		}
		cleaned := path.Clean("/" + decoded)
		if strings.HasSuffix(decoded, "/") && cleaned != "/" {
			cleaned += "/"
		}
		return cleaned
	},
	// nginx decodes once, merges slashes, and resolves dot segments of what it decoded.
	"nginx": func(p string) string {
		decoded, err := url.PathUnescape(p)
		if err != nil {
			return ""
		}
		return segments(decoded)
	},
	// Tomcat drops the parameters of each segment, decodes once, takes backslashes for
	// slashes, and then resolves dot segments.
	"Tomcat": func(p string) string {
		parts := strings.Split(p, "/")
		for i, part := range parts {
			parts[i], _, _ = strings.Cut(part, ";")
		}
		decoded, err := url.PathUnescape(strings.Join(parts, "/"))
		if err != nil {
			return ""
		}
		return segments(strings.ReplaceAll(decoded, `\`, "/"))
	},
	// A router may compare the path as it came.
	"literal": func(p string) string { return p },
	// A server behind a proxy that has decoded the path decodes it a second time.
	"twice": func(p string) string {
		first, err := url.PathUnescape(p)
		if err != nil {
			return ""
		}
		if second, err := url.PathUnescape(first); err == nil {
			first = second
		}
		return segments(strings.ReplaceAll(first, `\`, "/"))
	},
}

// segments merges the slashes of a path and resolves its dot segments.
func segments(p string) string {
	var kept []string
	parts := strings.Split(strings.TrimPrefix(p, "/"), "/")
	for i, part := range parts {
		last := i == len(parts)-1
		switch {
		case part == "..":
			kept = kept[:max(len(kept)-1, 0)]
		case part == ".", part == "" && !last:
			if !last {
				continue
			}
		default:
			kept = append(kept, part)
			continue
		}
		if last {
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/")
}

// oddPaths returns paths to /pay, /pay/7 and /off by many spellings of a way to them.
func oddPaths() (all []string) {
	dots := []string{"..", "%2e%2e", ".%2E", "%2e.", "%252e%252e", "..;", "..;a=b", ";/..", "..%3B", ".%252e", "%252e.;x", "%c0%ae%c0%ae", "%ef%bc%8e%ef%bc%8e", "..%00", "...", "."}
	slashes := []string{"/", "//", "%2f", "%2F", "\\", "%5c", "%5C", "%252f", "%255C", "/./", "/;/", ";/", "/%2e/", "%c0%af"}
	starts := []string{"/off", "/off/a", "/", "/none", "/off/a/..", "/off/a/../", "/pay/../off"}
	seen := map[string]bool{}
	add := func(p string) {
		if !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	for k, to := range []string{"pay", "p%61y", "pay;v=1", "pay/7", "off/x", "pay%2F7", "pay%3F"} {
		for i, slash := range slashes {
			add(slash + to)
			add("/" + slash + to)
			add("/" + to + slash)
			for j, dot := range dots {
				start := starts[(i+j)%len(starts)]
				switch (i + j + k) % 4 { // a part of the combinations: the test is to be quick
				case 0:
					add(start + slash + dot + slashes[(i+2*j)%len(slashes)] + to)
				case 1:
					add(start + "/" + dot + slash + to)
				case 2:
					add(start + "/b" + slash + dot + slash + dot + slash + to)
				}
			}
		}
	}
	return all
}

// No request that a common server reads as one of a guarded path reaches the service
// without a key, however its path is spelled. What the service has got is what counts.
func TestNoReadingOfAPathIsUnguarded(t *testing.T) {
	t.Parallel()
	all := oddPaths()
	if len(all) < 300 {
		t.Fatalf("only %d paths", len(all))
	}
	for name, c := range map[string]struct {
		routes     []config.Route
		defaultOff bool
		guarded    func(path string) bool
	}{
		"guarded paths, the rest off": {
			[]config.Route{route("POST /pay"), route("POST /pay/{id}"), route("POST /off/{rest...}", turnedOff)}, true,
			func(p string) bool {
				id, below := strings.CutPrefix(p, "/pay/")
				return p == "/pay" || below && id != "" && !strings.Contains(id, "/")
			},
		},
		"paths that are off, the rest guarded": {
			[]config.Route{route("POST /off/{rest...}", turnedOff), route("POST /none/", optional)}, false,
			func(p string) bool { return !strings.HasPrefix(p, "/off/") && !strings.HasPrefix(p, "/none/") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var passed []string
			b := setup(t, withRoutes(c.routes...), answering(func(_ http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				passed = append(passed, r.RequestURI)
			}), func(b *bundle) { b.config.Defaults.Off = c.defaultOff })
			answers := b.postAll(t, append(slices.Clone(all), "/off/clean"))
			mu.Lock()
			defer mu.Unlock()
			for _, target := range passed {
				for server, read := range servers {
					if reading := read(target); c.guarded(reading) {
						t.Errorf("%s passed without a key: %s reads it as %s", target, server, reading)
					}
				}
			}
			if len(passed) == 0 || passed[len(passed)-1] != "/off/clean" || answers[http.StatusOK] != len(passed) || answers[http.StatusBadRequest] < 300 {
				t.Errorf("%d passed, the answers were %v; this test tests nothing", len(passed), answers)
			}
			t.Logf("%d paths, %d passed, %v", len(all), len(passed), answers)
		})
	}
}

// postAll sends a POST without a key to each target, as it is, over one connection, and
// counts the statuses.
func (b *bundle) postAll(t *testing.T, targets []string) map[int]int {
	t.Helper()
	statuses := map[int]int{}
	var conn net.Conn
	var in *bufio.Reader
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	for _, target := range targets {
		if conn == nil {
			var err error
			conn, err = new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.url, "http://"))
			must(t, err)
			in = bufio.NewReader(conn)
		}
		_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nX-Tenant-Id: acme\r\nContent-Length: 2\r\n\r\n{}", target)
		must(t, err)
		res, err := http.ReadResponse(in, nil)
		must(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		must(t, err)
		res.Body.Close()
		statuses[res.StatusCode]++
		if res.Close {
			conn.Close()
			conn = nil
		}
	}
	return statuses
}

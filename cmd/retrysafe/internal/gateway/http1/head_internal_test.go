package http1

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// The head of a request is the one that net/http writes, in any order of its lines.
func TestHeadIsNetHTTPs(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*http.Request){
		"bare":       func(*http.Request) {},
		"post":       func(r *http.Request) { r.Method = http.MethodPost },
		"patch":      func(r *http.Request) { r.Method = http.MethodPatch },
		"unknown":    func(r *http.Request) { r.Method, r.Body = http.MethodPost, io.NopCloser(strings.NewReader("body")) },
		"own method": func(r *http.Request) { r.Method = "PURGE" },
		"body":       func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("body")), 4 },
		"chunks":     func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("body")), -1 },
		"no body":    func(r *http.Request) { r.Method, r.Body = http.MethodPut, http.NoBody },
		"closing":    func(r *http.Request) { r.Close = true },
		"host":       func(r *http.Request) { r.Host = "shop.example.com:8080" },
		"zone":       func(r *http.Request) { r.Host = "[fe80::1%25en0]:80" },
		"query":      func(r *http.Request) { r.URL.RawQuery = "a=1;b=2&c=%zz" },
		"mark":       func(r *http.Request) { r.URL.ForceQuery = true },
		"no path":    func(r *http.Request) { r.URL.Path = "" },
		"escaped":    func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/a/b c/ä", "/a%2Fb%20c/%C3%A4" },
		"opaque":     func(r *http.Request) { r.URL.Opaque = "//a/../b%2Fc" },
		"star":       func(r *http.Request) { r.Method, r.URL.Path = http.MethodOptions, "*" },
		"fields": func(r *http.Request) {
			r.Header = http.Header{
				"User-Agent": {"one", "two"}, "X-Many": {"a", "", " b, c\t"}, "lower": {"x"}, "X-Text": {"ä"},
				"Host": {"other"}, "Content-Length": {"7"}, "Transfer-Encoding": {"chunked"}, "Trailer": {"X-Sum"},
			}
		},
		"no agent": func(r *http.Request) { r.Header["User-Agent"] = []string{""} },
	} {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: "example.com", Path: "/things"}, Header: http.Header{"User-Agent": {"a"}}}
		change(r)
		length := bodyLength(r)
		got, err := appendHead(nil, r, length)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var want bytes.Buffer
		if err := r.Write(&want); err != nil {
			t.Fatal(name, err)
		}
		head, _, _ := strings.Cut(want.String(), "\r\n\r\n")
		if got, want := lines(string(got)), lines(head+"\r\n\r\n"); !slices.Equal(got, want) {
			t.Errorf("%s: %q, net/http writes %q", name, got, want)
		}
	}
}

// lines returns the first line of a head, and the others by their names.
func lines(head string) []string {
	all := strings.Split(head, "\r\n")
	slices.Sort(all[1:])
	return all
}

// A request that another reader could take for two is not sent.
func TestHeadIsNotRepaired(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   error
	}{
		"method":       {func(r *http.Request) { r.Method = "GET /a" }, errMethod},
		"no method":    {func(r *http.Request) { r.Method = "" }, errMethod},
		"space":        {func(r *http.Request) { r.URL.RawQuery = "a b" }, errTarget},
		"delete":       {func(r *http.Request) { r.URL.RawQuery = "a\x7fb" }, errTarget},
		"line":         {func(r *http.Request) { r.URL.Opaque = "/a\r\nX: b" }, errTarget},
		"host":         {func(r *http.Request) { r.Host = "a\r\nX: b" }, errHost},
		"host, path":   {func(r *http.Request) { r.Host = "a/b" }, errHost},
		"name":         {func(r *http.Request) { r.Header["X\r\nY"] = []string{"a"} }, errName},
		"name, colon":  {func(r *http.Request) { r.Header["X:Y"] = []string{"a"} }, errName},
		"value":        {func(r *http.Request) { r.Header["X"] = []string{"a\r\nY: b"} }, errValue},
		"value, nul":   {func(r *http.Request) { r.Header["X"] = []string{"a\x00"} }, errValue},
		"length":       {func(r *http.Request) { r.Header["content-length"] = []string{"7"} }, nil},
		"encoding":     {func(r *http.Request) { r.Header["transfer-ENCODING"] = []string{"chunked"} }, nil},
		"agent, value": {func(r *http.Request) { r.Header["User-Agent"] = []string{"a\nb"} }, errValue},
	} {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: "example.com", Path: "/things"}, Header: http.Header{}}
		c.change(r)
		got, err := appendHead(nil, r, 0)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if c.want == nil && string(got) != "GET /things HTTP/1.1\r\nHost: example.com\r\n\r\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

package routing_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/routing"
)

// routes returns guarded routes; a pattern behind a minus is not guarded.
func routes(matches ...string) []routing.Route {
	var all []routing.Route
	for _, match := range matches {
		match, off := strings.CutPrefix(match, "-")
		all = append(all, routing.Route{Match: match, Guards: !off})
	}
	return all
}

func table(t testing.TB, guarded bool, matches ...string) *routing.Table {
	t.Helper()
	made, err := routing.New(routes(matches...), routing.Route{Guards: guarded})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// A pattern is about what it matches, and never about what a ServeMux would redirect to
// it.
func TestOnlyAnExactMatchCounts(t *testing.T) {
	t.Parallel()
	matches := []string{
		"-POST /payments/{rest...}", "-POST /orders/", "POST /users/{id}/cards", "-POST /end/{$}", "/both", "PUT /things/{id}", "-POST shop.example/", "POST /a%2Fb",
		"-POST Caps.Example./caps", "-POST\t/tab",
	}
	made := table(t, true, matches...)
	for request, want := range map[string]string{
		"POST /payments":             "default",
		"POST /payments/":            "POST /payments/{rest...}",
		"POST /payments/a/b":         "POST /payments/{rest...}",
		"POST /orders":               "default",
		"POST /orders/":              "POST /orders/",
		"POST /users/7/cards":        "POST /users/{id}/cards",
		"POST /users/7%2F8/cards":    "POST /users/{id}/cards",
		"POST /users//cards":         "default",
		"POST /users/7/cards/":       "default",
		"POST /end":                  "default",
		"POST /end/":                 "POST /end/{$}",
		"POST /end/a":                "default",
		"POST /end//":                "default",
		"POST /both":                 "/both",
		"POST /%62oth":               "/both",
		"PATCH /both":                "/both",
		"PUT /both":                  "none",
		"PUT /things/1":              "PUT /things/{id}",
		"DELETE /things/1":           "none",
		"POST /a%2fb":                "POST /a%2Fb",
		"POST /a/b":                  "default",
		"POST Shop.Example.:80/both": "POST shop.example/",
		"POST shop.example":          "POST shop.example/",
		"POST caps.example/caps":     "POST Caps.Example./caps",
		"POST CAPS.EXAMPLE:443/caps": "POST Caps.Example./caps",
		"POST other.example/caps":    "default",
		"POST /tab":                  "POST\t/tab",
		"POST *":                     "default",
	} {
		method, rest, _ := strings.Cut(request, " ")
		host, at, found := strings.Cut(rest, "/")
		if at = "/" + at; !found {
			at = ""
		}
		if rest == "*" {
			host, at = "", rest
		}
		got := "default"
		switch place := made.Match(method, host, at); place {
		case routing.Default:
		case routing.None:
			got = "none"
		default:
			got = strings.TrimPrefix(matches[place], "-")
		}
		if got != want {
			t.Errorf("%s takes %q, want %q", request, got, want)
		}
	}
}

// Where nothing else guards a request, a slash more or less at the end does not slip past
// a guarded route. It frees nothing either.
func TestSlashAtTheEndIsGuardedWhereNothingElseIs(t *testing.T) {
	t.Parallel()
	matches := []string{"POST /tree/", "POST /leaf", "-POST /off/", "-POST /closed", "PUT /things/{id}"}
	for _, c := range []struct {
		method, path string
		guarded      bool // by default
		want         int
	}{
		{"POST", "/tree", false, 0},
		{"POST", "/tree", true, routing.Default},
		{"POST", "/leaf/", false, 1},
		{"POST", "/leaf/", true, routing.Default},
		{"POST", "/off", false, routing.Default},
		{"POST", "/off", true, routing.Default},
		{"POST", "/closed/", false, routing.Default},
		{"PUT", "/things/1/", true, 4},
		{"PUT", "/things/", true, routing.None},
		{"POST", "/", false, routing.Default},
	} {
		if got := table(t, c.guarded, matches...).Match(c.method, "", c.path); got != c.want {
			t.Errorf("%s %s, guarded by default: %v: takes %d, want %d", c.method, c.path, c.guarded, got, c.want)
		}
	}
}

// On clean paths a table chooses as a ServeMux does, except for its redirects.
func TestTheMostSpecificPatternCountsAsInServeMux(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	words := []string{"a", "b", "a", "{x}", "{y}"}
	ends := []string{"", "", "/", "/{z...}", "/{$}"}
	for range 300 {
		var matches []string
		mux, all := http.NewServeMux(), routes()
		for range 1 + random.IntN(8) {
			match := []string{"POST ", "", "PUT "}[random.IntN(3)] + []string{"", "", "h"}[random.IntN(3)]
			for _, i := range random.Perm(len(words))[:random.IntN(4)] {
				match += "/" + words[i]
			}
			match += ends[random.IntN(len(ends))]
			if _, err := routing.New(append(slices.Clone(all), routes(match)...), routing.Route{}); err != nil {
				continue // no pattern, or it conflicts
			}
			mux.Handle(match, http.NotFoundHandler())
			matches, all = append(matches, match), append(all, routes(match)...)
		}
		made := table(t, true, matches...)
		for range 40 {
			at := ""
			for range random.IntN(5) {
				at += "/" + []string{"a", "b", "c"}[random.IntN(3)]
			}
			if at == "" || random.IntN(3) == 0 {
				at += "/"
			}
			method, host := []string{"POST", "PUT", "PATCH"}[random.IntN(3)], []string{"h", "g"}[random.IntN(2)]
			h, want := mux.Handler(&http.Request{Method: method, Host: host, URL: &url.URL{Path: at}})
			if _, _, hasMethod := routing.CutMethod(want); want != "" && !hasMethod && method == http.MethodPut || isRedirect(h) {
				continue // a pattern without a method is for POST and PATCH here
			}
			got := ""
			if place := made.Match(method, host, at); place >= 0 {
				got = matches[place]
			}
			if got != want && method != http.MethodPut {
				t.Fatalf("%s %s%s takes %q, want %q of %q", method, host, at, got, want, matches)
			}
		}
	}
}

func isRedirect(h http.Handler) bool { return strings.Contains(fmt.Sprintf("%T", h), "redirect") }

// What a pattern may not be is refused, and so are two patterns for one request.
func TestBadPatternsAreRefused(t *testing.T) {
	t.Parallel()
	for _, matches := range [][]string{{"POST payments"}, {"POST /{"}, {"POST /{x}", "POST /{y}"}, {"POST shop.example/", "POST SHOP.example./"}, {""}} {
		if _, err := routing.New(routes(matches...), routing.Route{}); err == nil {
			t.Errorf("%q are accepted", matches)
		}
	}
}

// Each path that a server may make of another is looked up.
func TestFindReturnsTheRoutesOfAllReadings(t *testing.T) {
	t.Parallel()
	matches := []string{"-POST /off/{rest...}", "POST /pay", "POST /files/{name}"}
	made := table(t, false, matches...)
	for at, want := range map[string][]int{
		"/off/a":                             {0},
		"/pay":                               {1},
		"/p%61y":                             {1},
		"/off/a%2Fb":                         {0},
		"/off/a;b=c":                         {0},
		"/off/a%20b":                         {0},
		"/off/%E2%82%AC":                     {0},
		"/off/.well-known":                   {0},
		"/off/../pay":                        {0, 1},
		"/off/%2e%2E/pay":                    {0, 1},
		"/off/..%2Fpay":                      {0, 1},
		"/off/..;/pay":                       {0, 1, -1},
		"/off/..;a=b/pay":                    {0, 1, -1},
		`/off/..%5Cpay`:                      {0, 1},
		`/off\..\pay`:                        {-1, 0, 1},
		"/off/%252e%252e/pay":                {0, 1},
		"/off/%25252e%25252e/pay":            {0, 1},
		"/off/..%252Fpay":                    {0, 1},
		"/off//../pay":                       {0, 1},
		"//pay":                              {-1, 1},
		"//off/pay":                          {-1, 0, 1},
		"/pay;v=2":                           {-1, 1},
		"/pay%3Fv":                           {-1, 1},
		"/pay%23":                            {-1, 1},
		"/off/%EF%BC%8E%EF%BC%8E/pay":        {0, 1},
		"/off/\uff0e\uff0e/pay":              {0, 1},
		"/off/..%EF%BC%8Fpay":                {0, 1},
		"/off/..%EF%BC%BCpay":                {0, 1},
		"/pay%EF%BC%9Bv":                     {-1, 1},
		"/off/%EF%BC%852e%EF%BC%852e/pay":    {0, 1},
		"/pay?v":                             {-1, 1},
		"/pay#v":                             {-1, 1},
		"/off/a/..":                          {0}, // the folder, with its slash
		"*":                                  {-1, 0, 1, 2},
		"/files/a%2Fb":                       {2, -1},
		"/off/../../pay":                     {0, 1, 2, -1}, // above the root: it may be anything
		"/off/%00":                           {0, 1, 2, -1},
		"/off/%c0%ae%c0%ae/pay":              {0, 1, 2, -1},
		"/off/%c1%9c":                        {0, 1, 2, -1},
		"/off/%e0%9f%bf":                     {0, 1, 2, -1},
		"/off/%e0%a0%80":                     {0},
		"/off/%f0%8f%bf%bf":                  {0, 1, 2, -1},
		"/off/%f0%90%80%80":                  {0},
		"/off/%1f":                           {0, 1, 2, -1},
		"/off/%7f":                           {0, 1, 2, -1},
		"/off/..":                            {0, -1},
		"/pay/.":                             {-1, 1}, // with a slash at the end, which means nothing to many servers
		"/off/abecde/pay;v=1.0":              {0},
		"/off/%":                             {0},
		"/off/" + strings.Repeat("a;", 3000): {0, 1, 2, -1},
	} {
		place, others := made.Find(http.MethodPost, "", at)
		got := append([]int{place}, others...)
		slices.Sort(got[1:])
		slices.Sort(want[1:])
		if !slices.Equal(got, want) {
			t.Errorf("%.60s takes %d, want %d", at, got, want)
		}
	}
}

// What is no path takes no pattern, also none for every path; what a reader of references
// takes for a host has the root behind it; and a host counts in every reading.
func TestFindAtTheRootAndOfHosts(t *testing.T) {
	t.Parallel()
	if got := table(t, true, "-POST /").Match(http.MethodPost, "", "*"); got != routing.Default {
		t.Errorf("* takes %d", got)
	}
	if place, others := table(t, false, "POST /{$}").Find(http.MethodPost, "", "//x"); place != routing.Default || !slices.Contains(others, 0) {
		t.Errorf("//x takes %d or %d", place, others)
	}
	hosts := table(t, false, "POST shop.example/pay")
	if place, others := hosts.Find(http.MethodPost, "Shop.Example:443", "/off/../pay"); place != routing.Default || !slices.Contains(others, 0) {
		t.Errorf("/off/../pay of shop.example takes %d or %d", place, others)
	}
	if place, others := hosts.Find(http.MethodPost, "other.example", "/off/../pay"); place != routing.Default || slices.Contains(others, 0) {
		t.Errorf("/off/../pay of another host takes %d or %d", place, others)
	}
}

// A table looks at the methods of the default route and at those that patterns name.
func TestTableLooksAtMethodsOfPatterns(t *testing.T) {
	t.Parallel()
	made := table(t, true, "PUT /things/{id}")
	for method, want := range map[string]bool{"POST": true, "PATCH": true, "PUT": true, "DELETE": false, "GET": false} {
		if got := made.Looks(method); got != want {
			t.Errorf("it looks at %s: %v", method, got)
		}
	}
}

// The steps of the readings are those of the servers that they stand for: a reading of
// path.Clean is among them.
func FuzzFind(f *testing.F) {
	for _, seed := range []string{"/off/../pay", "/off/..;/pay", "//pay", "/%2e./pay", `/off\..\pay`, "/off/%252e%252e%252fpay", "/off/./../off/../pay/"} {
		f.Add(seed)
	}
	made := table(f, true, "-POST /off/{rest...}", "POST /pay", "-POST /pay/{rest...}")
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI("/" + strings.TrimPrefix(target, "/"))
		if err != nil || u.Host != "" {
			return
		}
		place, others := made.Find(http.MethodPost, "", u.EscapedPath())
		if path.Clean(u.Path) == "/pay" && !strings.HasSuffix(u.Path, "/") && place != 1 && !slices.Contains(others, 1) {
			t.Errorf("%q may be /pay, and takes %d or %d", target, place, others)
		}
	})
}

func TestNearMisses(t *testing.T) {
	t.Parallel()
	for match, want := range map[string][]string{
		"POST /payments": {
			"POST /payments/", "POST /payments/{more}", "POST /PAYMENTS", "PATCH /payments", "PUT /payments", "DELETE /payments",
		},
		"POST /hooks/{rest...}": {
			"POST /hooks", "POST /HOOKS/{more}", "PATCH /hooks/{more}", "PUT /hooks/{more}", "DELETE /hooks/{more}",
		},
		"PUT shop.example/users/{id}/": {
			"PUT shop.example/users/{id}", "PUT shop.example/USERS/{id}/{more}",
			"POST shop.example/users/{id}/{more}", "PATCH shop.example/users/{id}/{more}", "DELETE shop.example/users/{id}/{more}",
		},
		"/end/{$}": {
			"POST /end", "POST /end/{more}", "POST /END/", "PATCH /end", "PATCH /end/{more}", "PATCH /END/", "PUT /end/", "DELETE /end/",
		},
		"POST /": {"PATCH /{more}", "PUT /{more}", "DELETE /{more}"},
	} {
		var got []string
		for _, r := range routing.Near(match) {
			got = append(got, r.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", match, got, want)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	made := table(b, true, "-POST /hooks/{rest...}", "POST /payments", "POST /payments/{id}/refunds", "PUT /accounts/{id}")
	for _, at := range []string{"/payments/pay_8123/refunds", "/hooks/a%2Fb", "/hooks/..;/%252e%252e//pay%5Cx"} {
		b.Run(at, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				made.Find(http.MethodPost, "api.example.com", at)
			}
		})
	}
}

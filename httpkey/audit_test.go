package httpkey_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// open lists what an audit found, in short.
func open(found []httpkey.Unguarded) []string {
	var all []string
	for _, u := range found {
		all = append(all, u.Method+" "+u.Pattern+": "+u.Why)
	}
	return all
}

func TestAuditOfAMux(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ran := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a handler was run") })
	mux := http.NewServeMux()
	patterns := []string{}
	handle := func(pattern string, h http.Handler) {
		mux.Handle(pattern, h)
		patterns = append(patterns, pattern)
	}
	handle("POST /payments", b.guard.Handler(ran))
	handle("POST /payments/{id}/refunds", b.guard.Handler(ran))
	handle("GET /payments/{id}", ran)
	handle("PUT /payments/{id}", ran)
	handle("/any/{rest...}", b.guard.Handler(ran))
	handle("POST /{$}", b.guard.Handler(ran))
	handle("POST example.com/hosted/", b.guard.Handler(ran))
	handle("PATCH\t/tabbed", b.guard.Handler(ran))
	inTx, err := httpkey.TxHandler(b.guard, b.mem, func(http.ResponseWriter, *http.Request, *memstore.Tx) error {
		t.Error("a handler was run")
		return nil
	})
	must(t, err)
	handle("POST /in/tx", inTx)
	if got := open(httpkey.Audit(httpkey.MuxRoutes(mux, patterns))); len(got) != 0 {
		t.Errorf("found %q, want nothing", got)
	}

	handle("POST /forgotten", ran)
	handle("/open/", ran)
	handle("POST /x/{id}", ran)                    // a wildcard beside
	handle("POST /x/x", b.guard.Handler(ran))      // a guarded name that it could be taken for
	patterns = append(patterns, "POST /misspelt/") // not there
	patterns = append(patterns, "POST /any/gone")  // not there, and a guarded one takes its requests
	got := open(httpkey.Audit(httpkey.MuxRoutes(mux, patterns)))
	const why = ": no guard on the way to its handler"
	want := []string{
		"POST POST /forgotten" + why, "POST /open/" + why, "PATCH /open/" + why, "POST POST /x/{id}" + why, "POST POST /misspelt/" + why, "POST POST /any/gone" + why,
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%q, want\n%q", got, want)
	}
	if got := open(httpkey.Audit(httpkey.MuxRoutes(mux, []string{"PUT /payments/{id}"}), http.MethodPut)); len(got) != 1 {
		t.Errorf("found %q when asked about PUT", got)
	}
}

func TestAuditSaysWhy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ran := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a handler was run") })
	guard := func(change func(*httpkey.Options)) http.Handler {
		g, err := b.guard.With(change)
		must(t, err)
		return g.Handler(ran)
	}
	inTx := guard(func(o *httpkey.Options) { o.Optional, o.Tx = true, httpkey.InTx(b.mem) })
	routes := []httpkey.Route{
		{Method: "POST", Pattern: "/tx", Handler: inTx},
		{Method: "POST", Pattern: "/put", Handler: guard(func(o *httpkey.Options) { o.Methods = []string{"PUT"} })},
		{Method: "post", Pattern: "/observed", Handler: guard(func(o *httpkey.Options) { o.Observe = true })},
		{Method: "POST", Pattern: "/optional", Handler: guard(func(o *httpkey.Options) { o.Optional = true })},
		{Pattern: "/none"},
	}
	want := []string{
		"POST /tx: its guard lets requests without a key pass",
		"POST /put: its guard lets POST pass", "POST /observed: its guard only observes", "POST /optional: its guard lets requests without a key pass",
		"POST /none: no guard on the way to its handler", "PATCH /none: no guard on the way to its handler",
	}
	if got := open(httpkey.Audit(routes)); !slices.Equal(got, want) {
		t.Errorf("found\n%q, want\n%q", got, want)
	}
}

// A router such as chi keeps its middleware apart from its handlers.
func TestAuditOfMiddleware(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ran := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a handler was run") })
	logging := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-Id", "1")
			next.ServeHTTP(w, r)
			w.WriteHeader(200)
			fmt.Fprint(w, "done")
		})
	}
	login := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) })
	}
	chain := func(m ...func(http.Handler) http.Handler) []func(http.Handler) http.Handler { return m }
	routes := []httpkey.Route{
		{Method: "POST", Pattern: "/guarded", Handler: ran, Middleware: chain(logging, b.guard.Handler)},
		{Method: "POST", Pattern: "/inside", Handler: b.guard.Handler(ran), Middleware: chain(logging, logging)},
		{Method: "POST", Pattern: "/open", Handler: ran, Middleware: chain(logging)},
		{Method: "POST", Pattern: "/login", Handler: ran, Middleware: chain(login, b.guard.Handler)},
	}
	want := []string{"POST /open: no guard on the way to its handler", "POST /login: another middleware answered the probe before a guard did"}
	if got := open(httpkey.Audit(routes)); !slices.Equal(got, want) {
		t.Errorf("found\n%q, want\n%q", got, want)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", ran)
	if got := open(httpkey.Audit(httpkey.MuxRoutes(mux, []string{"POST /payments"}, logging, b.guard.Handler))); len(got) != 0 {
		t.Errorf("found %q behind a guard around the mux", got)
	}
	if len(b.records(t)) != 0 || len(b.findings) != 0 {
		t.Error("an audit left something behind")
	}
}

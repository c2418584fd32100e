package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/routing"
	"github.com/retrysafe/retrysafe/httpkey"
)

// maxAttempts is how often a request that is run later is run, where it may be: an
// upstream that is down for long costs an attempt every few minutes, so that patience
// ends first.
const maxAttempts = 1000

// makeWorkers makes workers for the routes whose requests are run later. A route that
// bounds its concurrency has one of its own, with so many hands; the others share one.
func (g *Gateway) makeWorkers(_ *config.Config, _ *Parts) error {
	g.statuses = make(map[string]http.Handler)
	shared := make(map[string]http.Handler)
	for _, rt := range g.table.order {
		if rt.handler == nil || rt.set.Observe {
			continue
		}
		for _, operation := range rt.operations() {
			g.statuses[label(operation)] = rt.guard.Status(operation)
		}
		if !rt.set.Async {
			continue
		}
		if rt.set.Concurrency > 0 {
			alone := make(map[string]http.Handler)
			for _, operation := range rt.operations() {
				alone[operation] = rt.handler
			}
			if err := g.makeWorker(alone, rt.set.Concurrency); err != nil {
				return err
			}
			continue
		}
		for _, operation := range rt.operations() {
			shared[operation] = rt.handler
		}
	}
	if len(shared) == 0 {
		return nil
	}
	return g.makeWorker(shared, 0)
}

func (g *Gateway) makeWorker(routes map[string]http.Handler, hands int) error {
	w, err := httpkey.NewWorker(g.guard, routes, &httpkey.WorkerOptions{Concurrency: hands, Attempts: maxAttempts, Logger: g.logger})
	if err != nil {
		return err
	}
	g.duties = append(g.duties, func(ctx context.Context) error { return w.Run(ctx) })
	return nil
}

// operations are what requests of the route are stored as, where that is known before
// they come.
func (rt *route) operations() []string {
	if rt.pattern == "" && !rt.set.Async {
		return nil // by their paths
	}
	return operationsOf(cmp.Or(rt.pattern, "/"))
}

// operationsOf returns what requests of a route with this pattern are stored as.
func operationsOf(pattern string) (all []string) {
	if _, _, ok := routing.CutMethod(pattern); ok {
		return []string{pattern}
	}
	for _, method := range routing.Methods(pattern) {
		all = append(all, method+" "+pattern)
	}
	return all
}

// statusPrefix is where clients look how their requests stand.
const statusPrefix = ownPrefix + "requests/"

// label names an operation in a URL. It stays the same from one configuration to the
// next.
func label(operation string) string {
	sum := sha256.Sum256([]byte("retrysafe operation\x00" + operation))
	return hex.EncodeToString(sum[:6])
}

// statusURL says where a client looks how its request stands.
func (rt *route) statusURL(r *http.Request, key string) string {
	operation := r.Pattern
	switch {
	case rt.pattern == "":
		if !rt.set.Async {
			return "" // it is asked about by sending it again
		}
		operation = r.Method + " /"
	case !strings.HasPrefix(operation, r.Method):
		operation = r.Method + " " + operation
	}
	return statusPrefix + label(operation) + "/" + url.PathEscape(key)
}

// serveOwn serves what is the gateway's own.
func (g *Gateway) serveOwn(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), statusPrefix)
	name, escaped, _ := strings.Cut(rest, "/")
	key, err := url.PathUnescape(escaped)
	status := g.statuses[name]
	if !ok || err != nil || key == "" || status == nil {
		g.guard.Refuse(w, r, "", &nothingHere)
		return
	}
	r.SetPathValue("key", key)
	status.ServeHTTP(w, r)
}

package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/httpkey"
)

// What guarded requests count in the memory that they share; see package admission. Most
// requests are small, and are charged once.
const (
	// requestCost is what a request counts before anything of its body has arrived: head,
	// stack and buffers, and a body and an answer of these sizes.
	requestCost = 16 << 10
	bodyFree    = 8 << 10
	answerFree  = 4 << 10
	// bodyStep and answerStep are what more is charged at a time.
	bodyStep, answerStep = 16 << 10, 32 << 10
	// answerCopies is how often a held answer is in memory: here, and until it is stored and
	// sent in the guard, or, of a large one, in the driver of the store.
	answerCopies = 2
)

// defaultRequests is how many guarded requests may be under way where the configuration
// does not say it.
const defaultRequests = 10_000

// BudgetFor returns the size of the budget of a configuration.
func BudgetFor(c *config.Config) (bytes, requests int64) {
	return admission.MemoryFor(c.Server.MaxMemory), int64(cmp.Or(c.Server.MaxConnections, defaultRequests))
}

// scope returns the tenant of a request, for the guard. It is called before the body is
// read, and takes what the request needs at least.
func (g *Gateway) scope(r *http.Request) (string, error) {
	tenant, err := g.tenants.tenant(r)
	x := proxiedOf(r.Context())
	if err != nil || x == nil || x.claim.IsOpen() { // nil: its status is asked for
		return tenant, err
	}
	name, address := g.consumer(r, tenant)
	x.tenant, x.consumer = tenant, admission.ConsumerOf(name, address)
	if limit := x.claim.Open(g.budget, name, address, requestCost); limit != admission.LimitNone {
		return "", x.refuse(limit, errCrowded)
	}
	return tenant, nil
}

// consumer returns the tenant and the address that a request is charged to. A token that
// the gateway does not verify may be invented for each request, so its address counts
// too; where all callers are one tenant only the address does.
func (g *Gateway) consumer(r *http.Request, tenant string) (name string, address netip.Addr) {
	if !g.tenants.byAddress {
		return tenant, address
	}
	address = g.clientAddress(r)
	if g.tenants.oneTenant && address.IsValid() {
		return "", address
	}
	return tenant, address
}

// clientAddress returns the address of the client: that of the connection, or the one
// that a trusted proxy has appended. It is the zero address if such a proxy has not.
func (g *Gateway) clientAddress(r *http.Request) netip.Addr {
	if !g.tenants.trusted.Include(r.RemoteAddr) {
		return admission.AddressOf(r.RemoteAddr)
	}
	lines := r.Header["X-Forwarded-For"]
	if len(lines) == 0 {
		return netip.Addr{}
	}
	last := lines[len(lines)-1]
	ip, err := netip.ParseAddr(strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:]))
	if err != nil {
		return netip.Addr{}
	}
	return admission.Plain(ip)
}

// A problemError lets a reader or the scope refuse a request with a problem, which the
// guard finds in the error.
type problemError struct{ problem *httpkey.Problem }

func (e *problemError) Error() string { return e.problem.Title }

// Problem is what the client is told.
func (e *problemError) Problem() *httpkey.Problem { return e.problem }

var (
	errCrowded = &problemError{&crowded}
	errTooSlow = &problemError{&tooSlow}
)

// An arrivingBody is the body of a guarded request. It is charged as it arrives; what a
// client only announces costs nothing.
type arrivingBody struct {
	io.ReadCloser
	x             *proxied
	arrived, room int64 // bytes, and how many may arrive before more is charged
	decoded       int64 // what the body may become when it is decoded, until that is charged
}

func (b *arrivingBody) Read(p []byte) (int, error) {
	x := b.x
	if !x.claim.IsOpen() { // it passes, or was refused
		return b.ReadCloser.Read(p)
	}
	if b.arrived == b.room {
		if !x.claim.Charge(bodyStep) {
			return 0, x.refuse(admission.LimitMemory, errCrowded)
		}
		b.room += bodyStep
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.room-b.arrived)])
	b.arrived += int64(n)
	switch {
	case n > 0 && b.decoded > 0:
		if !x.claim.Charge(b.decoded) {
			return n, x.refuse(admission.LimitMemory, errCrowded)
		}
		b.decoded = 0
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = x.refuse(admission.LimitBodyRate, errTooSlow)
	}
	return n, err
}

// refuse gives back what the request holds. In observe mode its body passes after that.
// Otherwise its connection is closed: net/http would wait for the rest of the body before
// it sends the refusal.
func (x *proxied) refuse(limit admission.Limit, why *problemError) error {
	x.route.g.noteLimit(limit, x.tenant)
	x.claim.Close()
	if x.request.ProtoMajor == 1 && !x.route.set.Observe {
		x.ResponseWriter.Header().Set("Connection", "close")
	}
	return why
}

// holdAnswer reports whether an answer of this size may be held. The answer of a request
// that is run later may: there is no connection to send it to instead, and workers are
// few.
func (x *proxied) holdAnswer(size int64) bool {
	if size <= x.answer || !x.claim.IsOpen() {
		return true
	}
	size = (size + answerStep - 1) / answerStep * answerStep
	if !x.claim.Charge(answerCopies * (size - x.answer)) {
		return false
	}
	x.answer = size
	return true
}

// refuseReplay tells the client of a retry to ask again, if the stored answer is large
// and the tenant holds too much already: clients that read slowly would keep it in memory.
// It reports whether it has.
func (x *proxied) refuseReplay() bool {
	h := x.ResponseWriter.Header()
	if x.event.Attempt > 0 || len(h["Idempotent-Replayed"]) == 0 || len(h["Content-Length"]) == 0 {
		return false
	}
	size, ok := decimal(h["Content-Length"][0])
	if !ok || size <= answerFree || x.claim.Charge(size) || !x.claim.IsOpen() {
		return false
	}
	x.route.g.noteLimit(admission.LimitReplays, x.tenant)
	for name := range h {
		if name != "Connection" { // the listener's
			delete(h, name)
		}
	}
	x.muted, x.event.Code = true, crowded.Code
	x.event.Status = crowded.Status
	x.route.guard.Refuse(x.ResponseWriter, x.request, "", &replayCrowded)
	return true
}

// decimal reads a length that was written here.
func decimal(text string) (n int64, ok bool) {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' || n > 1<<50 {
			return 0, false
		}
		n = 10*n + int64(text[i]-'0')
	}
	return n, text != ""
}

// limitRemedies says what an operator can do about a limit.
var limitRemedies = map[admission.Limit]string{
	admission.LimitMemory:    "the tenant may hold as much as is free of server.max_memory; raise it, lower max_request of the route, or limit the tenant by limits.in_flight",
	admission.LimitRequests:  "the tenant may have as many requests under way as are free of server.max_connections; raise it, or limit the tenant by limits.in_flight",
	admission.LimitAnswers:   "the answer was sent and not stored, because the tenant may hold as much as is free of server.max_memory; raise it, lower max_response of the route, or limit the tenant by limits.in_flight",
	admission.LimitReplays:   "the tenant may hold as much as is free of server.max_memory; raise it, or limit the tenant by limits.lookups_per_second",
	admission.LimitExchanges: "the tenant asks for more large answers than can be taken in beside the requests of others, and its request was not sent; limit the tenant by limits.in_flight, or let the service answer with less than 64 KiB",
	admission.LimitBodyRate:  "the client sends less than server.min_body_rate, or nothing; lower it, or raise server.read_header and server.read_body",
}

// noteLimit counts a refusal, and logs it at most once a second.
func (g *Gateway) noteLimit(limit admission.Limit, tenant string) {
	g.budget.Count(limit)
	if skipped, ok := g.limitLog.allow(); ok {
		attrs := []slog.Attr{slog.String("limit", limit.String()), slog.String("tenant", retrysafe.HashKey(tenant)), slog.String("remedy", limitRemedies[limit])}
		if skipped > 0 {
			attrs = append(attrs, slog.Int64("skipped", skipped))
		}
		g.logger.LogAttrs(context.Background(), slog.LevelWarn, "retrysafe: a limit is reached", attrs...)
	}
}

// A logPace lets one line a second through.
type logPace struct{ next, skipped atomic.Int64 }

// allow reports whether a line may be written, and how many were not since the last.
func (p *logPace) allow() (skipped int64, ok bool) {
	now, next := time.Now().UnixNano(), p.next.Load()
	if now < next && next-now <= int64(time.Second) || !p.next.CompareAndSwap(next, now+int64(time.Second)) {
		p.skipped.Add(1)
		return 0, false
	}
	return p.skipped.Swap(0), true
}

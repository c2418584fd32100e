package httpkey

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/headerkind"
)

// errHijack: the answer of a hijacked connection cannot be stored.
var errHijack = fmt.Errorf("httpkey: Hijack on a guarded route: %w", http.ErrNotSupported)

// errSealed: CompleteTx has stored the response in a transaction already.
var errSealed = errors.New("httpkey: the response was handed to a transaction and cannot change any more")

// errUnfenced: the outcome would be stored before the effects are committed.
var errUnfenced = errors.New("httpkey: a response that is streamed or over the limit cannot be stored together with its transaction")

// errOwnsTx: the transaction form completes by itself.
var errOwnsTx = errors.New("httpkey: CompleteTx inside a TxHandler, which stores the response in its transaction by itself; write the response and return nil")

// exchange is one guarded request whose handler runs. It is the handler's
// ResponseWriter: it holds the response until it is durable.
type exchange struct {
	g    *Guard
	w    http.ResponseWriter
	r    *http.Request        // as the server passed it
	run  *retrysafe.Execution // nil in the transaction form
	body heldBody

	header http.Header // what the handler sets
	sent   http.Header // the header as it was when the status was written, if it changed since
	status int         // zero until the handler writes it
	buf    []byte
	sealed bool             // CompleteTx has stored the response in a transaction
	taken  retrysafe.Result // as CompleteTx stored it
	// rolledBack: the last transaction that CompleteTx was given was rolled back, so
	// the response describes effects that are undone.
	rolledBack bool
	undone     bool         // that transaction was rolled back by the guard, which proves it
	ended      bool         // the handler had ended that transaction itself, and may have committed it
	inTx       retrysafe.Tx // the transaction that has stored the response
	leftOpen   bool         // the handler returned without ending it
	dropped    bool         // the handler wrote after CompleteTx
	plain      bool         // all its headers are stored ones, so none is a trailer
	ran        bool         // in the transaction form: the handler was called
	failed     bool         // in the transaction form: the handler's framework says that it ended with an error
	declined   bool         // in the transaction form: the handler ended with an error, and its response says so
	until      time.Time    // in the transaction form: when the stored response is forgotten
	direct     bool         // the outcome is stored; writes go straight to the client
	fault      error        // why the response cannot be finished
}

// Header returns the handler's own header map. Headers that outer middleware has set
// are in another map, so they are not stored.
func (x *exchange) Header() http.Header {
	if x.header == nil {
		x.header = make(http.Header)
	}
	if x.sealed {
		return x.header.Clone()
	}
	if x.status != 0 && x.sent == nil {
		x.sent = x.header.Clone() // a header that is set from now on is too late, or is a trailer
	}
	return x.header
}

// WriteHeader sets the status. Informational responses are sent at once. Of the final
// ones only the first counts, as with net/http.
func (x *exchange) WriteHeader(status int) {
	switch {
	case x.status != 0 || x.sealed:
	case status < 100 || status > 999:
		x.fault = fmt.Errorf("handler wrote the invalid status %d", status)
		x.status = http.StatusInternalServerError
	case status == http.StatusSwitchingProtocols:
		x.fault = fmt.Errorf("handler switched protocols on a guarded route: %w", http.ErrNotSupported)
		x.status = http.StatusInternalServerError
	case status < 200:
		x.inform(status)
	default:
		x.status = status
		if len(x.header["Trailer"]) > 0 && x.sent == nil { // the handler may have kept the map, and set trailers in it
			x.sent = x.header.Clone()
		}
	}
}

// inform sends an informational response with the handler's headers so far.
func (x *exchange) inform(status int) {
	h := x.w.Header()
	before := h.Clone()
	mergeHeader(h, x.header)
	x.w.WriteHeader(status)
	clear(h)
	for name, values := range before {
		h[name] = values
	}
}

func (x *exchange) Write(p []byte) (int, error) {
	if err := x.writable(len(p)); err != nil {
		return 0, err
	}
	if x.direct {
		return x.w.Write(p)
	}
	if x.buf == nil {
		x.buf = make([]byte, 0, max(len(p), 64, x.announced()))
	}
	x.buf = append(x.buf, p...)
	return len(p), nil
}

// WriteOwned is Write of bytes that the caller does not use again: the first ones are held
// without a copy. A proxy calls it, through an interface of its own, with a large body.
func (x *exchange) WriteOwned(p []byte) (int, error) {
	if len(x.buf) > 0 {
		return x.Write(p)
	}
	if err := x.writable(len(p)); err != nil {
		return 0, err
	}
	if x.direct {
		return x.w.Write(p)
	}
	x.buf = p
	return len(p), nil
}

// announced returns the length of the body that the handler has announced, if that will be
// kept, so that a large body is not copied again and again as it grows.
func (x *exchange) announced() int {
	length := x.header["Content-Length"]
	if len(length) != 1 {
		return 0
	}
	n, err := strconv.ParseInt(length[0], 10, 64)
	if err != nil || n < 0 || n > x.g.o.MaxResponse {
		return 0
	}
	return int(n)
}

// WriteString is Write without a copy.
func (x *exchange) WriteString(s string) (int, error) {
	if err := x.writable(len(s)); err != nil {
		return 0, err
	}
	if x.direct {
		return x.w.Write([]byte(s))
	}
	x.buf = append(x.buf, s...)
	return len(s), nil
}

// writable prepares for n more bytes of body. Beyond the limit the outcome is stored
// without the body, and the response is sent to the client directly.
func (x *exchange) writable(n int) error {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	switch {
	case x.sealed:
		x.dropped = x.dropped || n > 0
		return errSealed
	case x.fault != nil:
		return x.fault
	case !bodyAllowed(x.status):
		return http.ErrBodyNotAllowed
	case !x.direct && int64(len(x.buf)+n) > x.g.o.MaxResponse:
		size := int64(len(x.buf) + n)
		err := x.goDirect()
		if err == nil {
			x.warnOmitted(size)
		}
		return err
	}
	return nil
}

// warnOmitted counts and logs that the answer, of at least size bytes, is over the limit and
// not stored: otherwise the first sign would be what a retry gets.
func (x *exchange) warnOmitted(size int64) {
	if x.run.State() != retrysafe.StateCompleted { // an attempt that failed has no answer to store
		return
	}
	ref := x.run.Ref()
	x.g.report(responseNotStored.code, x.r, ref.Key, false)
	x.g.counts.occasionally(func() {
		known := "size_so_far"
		if announced, err := strconv.ParseInt(first(x.final()["Content-Length"]), 10, 64); err == nil {
			known, size = "size", announced
		}
		x.g.o.Logger.Warn("retrysafe: an answer is over the limit, so it was sent and not stored; a retry gets response-not-stored",
			"operation", x.g.operation(x.r), "scope", retrysafe.HashKey(ref.Scope), "key", retrysafe.HashKey(ref.Key), known, size, "limit", x.g.o.MaxResponse,
			"fix", "raise Options.MaxResponse, in a gateway max_response of the route; or answer with the Location of a resource that has the result")
	})
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// goDirect stores the outcome without a body and starts to send the response.
func (x *exchange) goDirect() error {
	if x.run == nil || x.rolledBack || x.g.policy.Effects == retrysafe.EffectsInTx && x.status < 400 {
		x.fault = errUnfenced
		return x.fault
	}
	err := x.settle(bodyAllowed(x.status))
	if errors.Is(err, retrysafe.ErrSettled) && x.run.State() != retrysafe.StateCompleted {
		// The handler has released, quarantined or handed over the execution: there is
		// nothing to store.
		if err = nil; !x.tellable() {
			err = errNoSuccess
		}
	}
	if err != nil {
		x.fault = err
		return err
	}
	x.direct = true
	x.send()
	x.buf = nil
	return nil
}

// Omit does to a response what is done to one over [Options.MaxResponse]: it stores the outcome without the body, and sends the response to
// the client directly. A proxy calls it, through an interface of its own, when it has no
// memory to hold the rest.
func (x *exchange) Omit() error {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	if x.fault != nil || x.direct || x.sealed {
		return x.fault
	}
	return x.goDirect()
}

// FlushError does what the stream policy says.
func (x *exchange) FlushError() error {
	if x.g.o.Stream != StreamThrough || x.sealed {
		return nil
	}
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	if x.fault != nil {
		return x.fault
	}
	if !x.direct {
		if err := x.goDirect(); err != nil {
			return err
		}
	}
	return http.NewResponseController(x.w).Flush()
}

// Flush is FlushError for handlers that use http.Flusher.
func (x *exchange) Flush() { _ = x.FlushError() }

// Hijack is refused.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errHijack }

// Deadlines and full duplex concern the connection, not the response, so they are
// passed on to it. There is no Unwrap: with it a handler could bypass the guard.

// SetReadDeadline sets the connection's read deadline.
func (x *exchange) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(x.w).SetReadDeadline(t)
}

// SetWriteDeadline sets the connection's write deadline.
func (x *exchange) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(x.w).SetWriteDeadline(t)
}

// EnableFullDuplex lets the handler read while it writes.
func (x *exchange) EnableFullDuplex() error {
	return http.NewResponseController(x.w).EnableFullDuplex()
}

// final returns the header as it was when the status was written.
func (x *exchange) final() http.Header {
	if x.sent != nil {
		return x.sent
	}
	return x.header
}

// send sends what is held: status, all the handler's headers, body so far.
func (x *exchange) send() {
	h := x.w.Header()
	mergeHeader(h, x.final())
	delete(h, "Content-Length") // net/http counts what is really sent
	if expires, ok := x.expires(); ok {
		h[expiresHeader] = []string{x.g.dates.format(expires)}
	}
	// Net/http looks for trailers before it writes the header, and sets the length of
	// short bodies by itself.
	if !x.direct && !x.sendTrailers() && len(x.buf) > countedBody {
		h["Content-Length"] = []string{strconv.Itoa(len(x.buf))}
	}
	x.w.WriteHeader(x.status)
	if len(x.buf) > 0 {
		_, _ = x.w.Write(x.buf) // a client that has disconnected retries
	}
}

// expires returns when the answer is forgotten, if it is stored.
func (x *exchange) expires() (time.Time, bool) {
	if x.run == nil {
		return x.until, !x.until.IsZero()
	}
	return x.run.Expires()
}

// sendTrailers passes the handler's trailers on to net/http, and reports whether there
// were any.
func (x *exchange) sendTrailers() bool {
	trailers := x.trailers()
	for name, values := range trailers {
		x.w.Header()[http.TrailerPrefix+name] = values
	}
	return len(trailers) > 0
}

// trailers returns the handler's trailers: names with http.TrailerPrefix, and those
// that it announced in the Trailer header.
func (x *exchange) trailers() map[string][]string {
	if x.plain {
		return nil
	}
	var found map[string][]string
	add := func(name string, values []string) {
		if len(values) == 0 || headerkind.IsPerExchange(name) {
			return
		}
		if found == nil {
			found = make(map[string][]string)
		}
		found[name] = values
	}
	for name, values := range x.header {
		if after, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			add(http.CanonicalHeaderKey(after), values)
		}
	}
	for _, list := range x.final()["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if x.sent != nil { // only a header that was set after the status is a trailer
				add(name, x.header[name])
			}
		}
	}
	return found
}

// result returns the response as it is stored. Its header is a copy: a handler that
// keeps its own map cannot change the stored one.
func (x *exchange) result(omitted bool) retrysafe.Result {
	res := retrysafe.Result{Status: x.status, Omitted: omitted}
	header := x.final()
	if len(header) > 0 {
		res.Header = make(map[string][]string, len(header))
	}
	var copies copier
	for name, values := range header {
		if x.g.stored[name] {
			res.Header[name] = copies.of(values)
		}
	}
	x.plain = !omitted && len(res.Header) == len(header) && x.sent == nil // a streaming handler may still set trailers
	if omitted {
		return res
	}
	res.Body = x.buf
	for name, values := range x.trailers() {
		if res.Header == nil {
			res.Header = make(map[string][]string)
		}
		res.Header[http.TrailerPrefix+name] = copies.of(values)
	}
	return res
}

// mergeHeader copies the headers of from into to. Vary is appended, because outer
// middleware may vary on other headers. Trailers are left out, and so is what only the
// guard says.
func mergeHeader(to, from http.Header) {
	for name, values := range from {
		switch {
		case name == "Vary":
			to[name] = append(to[name][:len(to[name]):len(to[name])], values...)
		case name == "Trailer", strings.HasPrefix(name, http.TrailerPrefix), headerkind.IsGuards(name):
		default:
			to[name] = values[:len(values):len(values)]
		}
	}
}

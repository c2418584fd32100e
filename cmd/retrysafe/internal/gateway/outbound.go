package gateway

import (
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/http1"
	"github.com/retrysafe/retrysafe/internal/headerkind"
	"github.com/retrysafe/retrysafe/internal/neverresend"
)

// An outbound is the upstream's request for a client's, on its way.
//
// By the gateway's own exchange it ends with the body of its answer, so that it is reused.
// A transport may hold on to a request for longer: then it is a new one each time.
type outbound struct {
	request http.Request
	url     url.URL
	header  http.Header
	call    http1.Call
	w       http.ResponseWriter // gets informational answers
	own     bool                // it goes by the gateway's own exchange
	onHint  func(int, http.Header)
}

// outbound returns what a request to the upstream is made in.
func (u *upstream) outbound(reused *outbound) *outbound {
	if !u.exchanges() {
		return new(outbound)
	}
	if reused.onHint == nil {
		reused.own, reused.onHint = true, reused.inform
	}
	return reused
}

// address makes the upstream's request of the client's: the same target and header, but for
// what concerns the client's connection. It does what [httputil.ReverseProxy] does, and
// hands header values on instead of copying them. Trailers of a request do not pass.
func (o *outbound) address(g *Gateway, r *http.Request) {
	o.request, o.url = *r, *r.URL
	out := &o.request
	out.URL, out.RequestURI, out.Close, out.TransferEncoding, out.Trailer, out.GetBody = &o.url, "", false, nil, nil, nil
	if r.ContentLength == 0 {
		out.Body = nil
	}
	if o.header == nil {
		o.header = make(http.Header, len(r.Header)+len(forwardedHeaders)+1)
	}
	clear(o.header)
	out.Header = o.header
	for name, values := range r.Header {
		if name != "Forwarded" && !headerkind.IsHop(name) {
			o.header[name] = values
		}
	}
	for _, line := range r.Header["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			o.header.Del(textproto.TrimString(name))
		}
	}
	if lists(r.Header["Te"], "trailers") {
		o.header["Te"] = trailersWanted
	}
	if _, ok := o.header["User-Agent"]; !ok {
		o.header["User-Agent"] = noAgent
	}
	g.rewriteTarget(r, out)
}

var (
	trailersWanted = []string{"trailers"}
	noAgent        = []string{""} // keeps a transport from naming itself
)

// lists reports whether one of the lists has an element.
func lists(lines []string, element string) bool {
	for _, line := range lines {
		for one := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(textproto.TrimString(one), element) {
				return true
			}
		}
	}
	return false
}

// forget lets go of the request.
func (o *outbound) forget() {
	o.request, o.call, o.w = http.Request{}, http1.Call{}, nil
	clear(o.header)
}

// inform sends an informational answer on.
func (o *outbound) inform(status int, header http.Header) {
	own := o.w.Header()
	for name, values := range header {
		own[name] = values
	}
	o.w.WriteHeader(status)
	clear(own) // they were this answer's
}

// send sends a request to the upstream and returns the head of its answer, whose body the
// caller closes once. W gets informational answers. If the request must not be sent twice
// it is sent once; one that may, by its nature, is sent again if the upstream has closed the
// connection that it was sent on. A timeout bounds the exchange with the whole answer; by a
// transport the request's context has to.
func (u *upstream) send(o *outbound, w http.ResponseWriter, once bool, timeout time.Duration) (*http.Response, error) {
	o.w = w
	if !o.own {
		return u.transport(o, once)
	}
	o.call = http1.Call{Request: &o.request, Inform: o.onHint}
	if once {
		o.call.Rested = freshTimeout
	}
	if timeout > 0 {
		o.call.Deadline = time.Now().Add(timeout)
	}
	res, err := u.own.Do(&o.call)
	if err != nil && errors.Is(err, http1.ErrStale) && !once && o.request.Body == nil {
		o.call.Rested = -1
		res, err = u.own.Do(&o.call)
	}
	if err != nil && u.url.Scheme == "https" && errors.Is(err, neverresend.ErrNotSent) {
		u.http1.Store(false) // it may have changed its mind: the next request asks again
	}
	return res, err
}

// transport sends a request by one of net/http's transports.
func (u *upstream) transport(o *outbound, once bool) (*http.Response, error) {
	way, hints := u.plain, &earlyHints{out: o}
	if once {
		way = u.once
	}
	ctx := httptrace.WithClientTrace(o.request.Context(), &httptrace.ClientTrace{Got1xxResponse: hints.got})
	res, err := way.RoundTrip(o.request.WithContext(ctx))
	hints.end()
	if err == nil && res.ProtoMajor == 1 && u.own != nil {
		u.http1.Store(true)
	}
	return res, err
}

// earlyHints sends informational answers on until there is another. A transport calls it
// from a goroutine of its own.
type earlyHints struct {
	out   *outbound
	mu    sync.Mutex
	ended bool
}

func (h *earlyHints) got(status int, header textproto.MIMEHeader) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.out.inform(status, http.Header(header))
	}
	return nil
}

func (h *earlyHints) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
}

// isSafe reports whether requests of a method may be repeated by their nature.
func isSafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

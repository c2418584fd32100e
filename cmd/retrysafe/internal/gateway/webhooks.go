package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/webhook"
)

// maxWebhookSearch is how many records are searched for the key of an event: as many as
// an outage may leave behind.
const maxWebhookSearch = 1_000_000

// webhooks are where providers send their events.
type webhooks struct {
	at     map[string]*hook // by path
	order  []*hook
	engine retrysafe.Observer // what the engine tells its events
	told   []retrysafe.Observer
}

// observer returns the engine's observer, which tells the intakes too once there are some.
func (h *webhooks) observer(next retrysafe.Observer) retrysafe.Observer {
	h.engine = next
	return h
}

// Observe implements [retrysafe.Observer].
func (h *webhooks) Observe(e retrysafe.Event) {
	h.engine.Observe(e)
	for _, o := range h.told {
		o.Observe(e)
	}
}

// A hook is the endpoint of one webhook.
type hook struct {
	g      *Gateway
	name   string
	route  string // in the access log and in metrics
	most   int64  // bytes of a body
	intake *webhook.Intake
}

// makeWebhooks makes the endpoints. The engine runs no request before the gateway is
// made, so its observer is complete by then.
func (g *Gateway) makeWebhooks(c *config.Config, p *Parts) error {
	g.webhooks.at = make(map[string]*hook)
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		h, err := g.newHook(w, c, p)
		if err != nil {
			return fmt.Errorf("webhook %q: %w", w.Name, err)
		}
		g.webhooks.at[w.Path] = h
		g.webhooks.order = append(g.webhooks.order, h)
		if w.Find.DownstreamKey != "" {
			g.webhooks.told = append(g.webhooks.told, h.intake)
		}
	}
	return nil
}

func (g *Gateway) newHook(w *config.Webhook, c *config.Config, p *Parts) (*hook, error) {
	read, err := newEventReader(w, c, g.logger)
	if err != nil {
		return nil, err
	}
	o := &webhook.Options{
		MaxBody: w.MaxBody, Retention: w.Retention, MaxSearch: maxWebhookSearch,
		Observer: p.Observer, Logger: g.logger,
	}
	if w.Missing == config.MissingAcknowledge {
		o.Missing = webhook.MissingAcknowledge
	}
	if w.Find.DownstreamKey != "" {
		o.DownstreamKeys = func(ref retrysafe.Ref) []string {
			return []string{retrysafe.DownstreamKey(config.Namespace, ref, config.UpstreamCall)}
		}
	}
	for _, rt := range g.table.order {
		if len(w.Operations) > 0 && rt.pattern != "" && w.Covers(rt.pattern) {
			o.Operations = append(o.Operations, rt.operations()...)
		}
	}
	if len(w.Operations) > 0 && len(o.Operations) == 0 {
		return nil, errors.New("operations: none of them is a route's") // none would mean all
	}
	intake, err := webhook.New(w.Name, g.engine, w.Verifier(), read.read, o)
	if err != nil {
		return nil, err
	}
	return &hook{g: g, name: w.Name, route: "webhook " + w.Name, most: w.MaxBody, intake: intake}, nil
}

// ServeHTTP serves one event. The signature is its only authentication. What it holds is
// charged to its address, like that of a caller that is not known.
func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	seen := &statusWriter{ResponseWriter: w}
	code := h.serve(seen, r)
	if h.g.exchange == nil {
		return
	}
	handling := HandlingEvent
	if seen.status < 200 || seen.status > 299 {
		handling = HandlingRefused
	}
	h.g.exchange(Exchange{
		Method: r.Method, Path: r.URL.EscapedPath(), Route: h.route, Handling: handling, Code: code,
		Status: seen.status, Bytes: seen.bytes, Took: time.Since(began), Context: r.Context(),
	})
}

func (h *hook) serve(w http.ResponseWriter, r *http.Request) (code string) {
	var claim admission.Claim
	defer claim.Close()
	address := h.g.clientAddress(r)
	name := ""
	if !address.IsValid() {
		name = h.route
	}
	if limit := claim.Open(h.g.budget, name, address, requestCost); limit != admission.LimitNone {
		return h.refuse(w, r, limit, &crowded)
	}
	if r.Method == http.MethodPost {
		body, limit, err := h.readBody(r, &claim)
		switch {
		case limit == admission.LimitBodyRate:
			return h.refuse(w, r, limit, &tooSlow)
		case limit != admission.LimitNone:
			return h.refuse(w, r, limit, &crowded)
		}
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err})) // the intake reads the error too
	}
	h.intake.ServeHTTP(w, r)
	return ""
}

// readBody reads the body as far as the intake will take it, and charges it as it arrives.
func (h *hook) readBody(r *http.Request, claim *admission.Claim) (body []byte, limit admission.Limit, err error) {
	room := int64(bodyFree)
	buffer := make([]byte, 0, min(max(r.ContentLength, 512), room))
	for int64(len(buffer)) <= h.most {
		if int64(len(buffer)) == room {
			if !claim.Charge(bodyStep) {
				return nil, admission.LimitMemory, nil
			}
			room += bodyStep
		}
		if len(buffer) == cap(buffer) {
			grown := make([]byte, len(buffer), min(int64(2*cap(buffer)), room))
			copy(grown, buffer)
			buffer = grown
		}
		n, err := r.Body.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		switch {
		case errors.Is(err, io.EOF):
			return buffer, admission.LimitNone, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, admission.LimitBodyRate, nil
		case err != nil:
			return buffer, admission.LimitNone, err
		}
	}
	return buffer, admission.LimitNone, nil
}

// failing is a reader at the end of a body.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

// refuse refuses an event before the intake has seen it.
func (h *hook) refuse(w http.ResponseWriter, r *http.Request, limit admission.Limit, p *httpkey.Problem) string {
	h.g.noteLimit(limit, h.route)
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // or net/http would wait for the rest of the body
	}
	h.g.guard.Refuse(w, r, "", p)
	return p.Code
}

// Webhooks returns the intakes by the names of their webhooks.
func (g *Gateway) Webhooks() map[string]*webhook.Intake {
	all := make(map[string]*webhook.Intake, len(g.webhooks.order))
	for _, h := range g.webhooks.order {
		all[h.name] = h.intake
	}
	return all
}

// names are what the webhooks are called in metrics of requests.
func (h *webhooks) names() (names []string) {
	for _, one := range h.order {
		names = append(names, one.route)
	}
	return names
}

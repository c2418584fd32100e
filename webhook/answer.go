package webhook

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A result is the effect of a processed event. It is the event's answer.
type result string

const (
	unchanged    result = ""             // the record already agrees, or the event brings no new evidence
	settled      result = "settled"      // the unknown outcome was settled
	noted        result = "noted"        // the outcome is still unknown; the evidence is stored with the record
	contradicted result = "contradicted" // the evidence contradicts the record; an operator has to look
	ignored      result = "ignored"      // the event is about no key
	acknowledged result = "acknowledged" // the key does not exist, and Options.Missing accepts that
	swept        result = "swept"        // internal: a lapsed attempt was settled, and the record is judged again
)

func (o result) String() string {
	if o == unchanged {
		return "unchanged"
	}
	return string(o)
}

// result returns the answer that is stored.
func (o result) result() retrysafe.Result {
	text, _ := json.Marshal(map[string]string{"outcome": o.String()})
	return retrysafe.Result{
		Status: http.StatusOK,
		Header: map[string][]string{"Content-Type": {"application/json"}},
		Body:   append(text, '\n'),
	}
}

// problemPage explains the problems, each under its code.
const problemPage = "https://github.com/retrysafe/retrysafe/blob/main/docs/webhooks.md#"

// A problem is a reason to refuse an event. A refused event is not stored, so the
// provider may deliver it again.
type problem struct {
	code   string
	status int
	title  string
	detail string
	later  bool // a later delivery may succeed
}

var (
	bodyUnreadable   = &problem{"body-unreadable", 400, "Event body could not be read", "It ended early.", true}
	eventMalformed   = &problem{"event-malformed", 400, "Event is malformed", "It is not in the form of its signature scheme.", false}
	eventForged      = &problem{"event-forged", 401, "Event is not signed", "None of its signatures was made with a secret that is known here.", false}
	eventLate        = &problem{"event-late", 401, "Event was not signed now", "Its time stamp is too far from the time here. Sign it anew for each delivery.", false}
	noSuchKey        = &problem{"no-such-key", 404, "There is no such key", "It may not be visible yet. Deliver the event again later.", true}
	notPost          = &problem{"method-not-allowed", 405, "Events are sent with POST", "Nothing was taken in.", false}
	keyAmbiguous     = &problem{"key-ambiguous", 409, "The event may be about more than one key", "Nothing was changed.", true}
	bodyTooLarge     = &problem{"body-too-large", 413, "Event body is too large", "Nothing was taken in.", false}
	eventUnmatched   = &problem{"event-unmatched", 500, "No rule reads such events", "The fault is on this side. Deliver the event again later.", true}
	notRead          = &problem{"event-not-read", 500, "Event could not be read", "The fault is on this side. Deliver the event again later.", true}
	keyInFlight      = &problem{"key-in-flight", 503, "The operation is being worked on", "Deliver the event again later.", true}
	eventInFlight    = &problem{"event-in-flight", 503, "The event is being worked on", "Another delivery of it came first. Deliver it again later.", true}
	recordUnreadable = &problem{"record-unreadable", 503, "A stored record cannot be read", "Deliver the event again later.", true}
	searchIncomplete = &problem{"search-incomplete", 503, "The event's key was not found in time", "Deliver the event again later.", true}
	storeUnavailable = &problem{"store-unavailable", 503, "Store is unavailable", "Deliver the event again later.", true}
)

// problems and outcomes list all values, for counters and documentation.
var (
	problems = []*problem{
		bodyUnreadable, eventMalformed, eventForged, eventLate, noSuchKey, notPost, keyAmbiguous, bodyTooLarge, eventUnmatched, notRead,
		keyInFlight, eventInFlight, recordUnreadable, searchIncomplete, storeUnavailable,
	}
	outcomes = []result{unchanged, settled, noted, contradicted, ignored, acknowledged}
)

// A refusal is a problem with its cause, as an error.
type refusal struct {
	*problem
	cause      error // for the log only
	retryAfter time.Duration
}

func refuse(p *problem, cause error) *refusal { return &refusal{problem: p, cause: cause} }

func (re *refusal) Error() string {
	if re.cause != nil {
		return "webhook: " + re.title + ": " + re.cause.Error()
	}
	return "webhook: " + re.title
}

// Unwrap returns the cause.
func (re *refusal) Unwrap() error { return re.cause }

type problemBody struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"`
}

// defaultPause is the Retry-After of a refusal that has none of its own.
const defaultPause = 30 * time.Second

func (re *refusal) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/problem+json")
	switch {
	case re.later:
		pause := re.retryAfter
		if pause <= 0 {
			pause = defaultPause
		}
		h.Set("Retry-After", strconv.FormatInt(int64((pause+time.Second-1)/time.Second), 10))
	case re.status == http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Signature")
	case re.status == http.StatusMethodNotAllowed:
		h.Set("Allow", http.MethodPost)
	}
	text, _ := json.Marshal(problemBody{problemPage + re.code, re.title, re.status, re.detail, re.code, re.later})
	w.WriteHeader(re.status)
	_, _ = w.Write(append(text, '\n'))
}

func writeResult(w http.ResponseWriter, r *retrysafe.Outcome) {
	h := w.Header()
	for name, values := range r.Header {
		h[name] = values
	}
	h.Set("Cache-Control", "no-store")
	if r.Replayed {
		h.Set("Idempotent-Replayed", "true")
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Body)
}

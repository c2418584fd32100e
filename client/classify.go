package client

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// A meaning is what an answer says about its operation.
type meaning uint8

const (
	final    meaning = iota // it is the operation's answer
	again                   // it may be another one later; this attempt may have been executed
	refused                 // this attempt was not executed, and asking again now does not help
	later                   // this attempt was not executed; it may be another answer later
	inFlight                // an earlier attempt is being executed
	accepted                // it is stored at the API, and will be executed
	mismatch                // the key belongs to another request
	unknown                 // the API does not know yet whether it was executed
	tooOld                  // the API has forgotten the key, or may have
)

// classify returns what an answer means. Doubt says that an earlier attempt may have been
// executed.
func classify(p Profile, response *http.Response, s *signs, doubt bool) meaning {
	status, h := response.StatusCode, response.Header
	_, hinted := retryAfter(h)
	keys := p != KeysIgnored
	switch {
	case replayed(h):
		return final
	case keys && s.are("outcome-unknown", "attempt-unknown", "idempotency-outcome-unknown"):
		return unknown
	case keys && s.are("key-expired", "first-sent-stale"):
		return tooOld
	case keys && s.mismatch(status):
		return mismatch
	case keys && status == http.StatusAccepted && (s.are("in-flight") || hinted && h.Get("Location") != ""):
		return accepted
	case keys && status == http.StatusConflict && (hinted || s.inFlight() || p == Stripe && (s.are("lock-timeout") || h.Get(shouldRetry) == "true")):
		return inFlight
	case keys && status == http.StatusConflict && doubt:
		return again // the API does not say why: it may be the answer, or about the attempt before
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return refused
	case notExecuted(status):
		return later
	case p == Stripe && h.Get(shouldRetry) == "false":
		return final
	case p == Stripe && h.Get(shouldRetry) == "true", failed(status) && !s.giveUp:
		return again
	default:
		return final
	}
}

const shouldRetry = "Stripe-Should-Retry"

// notExecuted reports whether a status is about the caller or the moment, and not about the
// request. APIs that honour keys do not store such an answer.
func notExecuted(status int) bool {
	return slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}, status)
}

// failed reports whether a status may be another one later.
func failed(status int) bool {
	return slices.Contains([]int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, status)
}

// markers are the headers by which APIs mark a replay.
var markers = []string{
	"Idempotent-Replayed", "Idempotency-Replayed", "X-Idempotent-Replayed", "X-Idempotency-Replayed", "Idempotent-Replay", "Idempotency-Replay",
	"X-Idempotent-Replay", "Idempotency-Hit", "X-Idempotency-Cache", "X-Idempotency-Cache-Hit", "X-Idempotency-Cached",
}

func replayed(h http.Header) bool {
	return slices.ContainsFunc(markers, func(name string) bool {
		return slices.Contains([]string{"true", "1", "hit", "yes"}, strings.ToLower(h.Get(name)))
	})
}

// signs are what the body of a refusal says: its type, code and title, in one spelling.
type signs struct {
	words  []string
	detail string // for people
	giveUp bool   // the problem says that another attempt does not help
}

// readSigns reads the body of an answer, as a problem of RFC 9457 or in Stripe's envelope.
// Anything else has no signs.
func readSigns(response *http.Response, body []byte) *signs {
	s := new(signs)
	if response.StatusCode < 400 && response.StatusCode != http.StatusAccepted {
		return s // a body of the application, whatever it says
	}
	var doc struct {
		Type, Code, Title, Detail, Message any
		Retryable, Error                   any
	}
	if json.Unmarshal(body, &doc) != nil {
		return s
	}
	s.read(doc.Type, doc.Code, doc.Title)
	s.detail = cmp.Or(text(doc.Title), text(doc.Message), text(doc.Detail))
	if inner, ok := doc.Error.(map[string]any); ok {
		s.read(inner["type"], inner["code"], inner["doc_url"])
		s.detail = cmp.Or(text(inner["message"]), s.detail)
	}
	s.read(doc.Error)
	s.giveUp = doc.Retryable == false
	if runes := []rune(s.detail); len(runes) > 200 {
		s.detail = string(runes[:200])
	}
	return s
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// read takes members that are texts. Of an address the last part counts.
func (s *signs) read(values ...any) {
	for _, v := range values {
		if word := text(v); word != "" {
			word = strings.TrimSuffix(word[strings.LastIndexByte(word, '/')+1:], ".md")
			s.words = append(s.words, strings.NewReplacer("_", "-", " ", "-").Replace(strings.ToLower(word)))
		}
	}
}

// are reports whether one of the signs is one of these.
func (s *signs) are(codes ...string) bool {
	return slices.ContainsFunc(s.words, func(w string) bool { return slices.Contains(codes, w) })
}

// say reports whether one of the signs contains one of these.
func (s *signs) say(parts ...string) bool {
	return slices.ContainsFunc(s.words, func(w string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(w, part) })
	})
}

// mismatch: the words of the draft, of retrysafe, of Stripe, and of other APIs. A 422 without
// any of them is an answer of the application.
func (s *signs) mismatch(status int) bool {
	different := s.are("key-reused") || s.say("idempoten") && s.say("already-used", "previously-used", "reused", "mismatch", "different")
	switch status {
	case http.StatusBadRequest:
		return different || s.are("idempotency-error")
	case http.StatusConflict, http.StatusUnprocessableEntity:
		return different || s.are("idempotency-conflict")
	default:
		return false
	}
}

// inFlight: the words of the draft, of retrysafe, of Stripe, and of other APIs.
func (s *signs) inFlight() bool {
	return s.are("in-flight") || s.say("idempoten") && s.say("in-flight", "in-use", "in-progress", "outstanding", "concurrent", "processing")
}

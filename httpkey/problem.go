package httpkey

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// problemPages is where the pages of docs/problems are published.
const problemPages = "https://github.com/retrysafe/retrysafe/blob/main/docs/problems/"

// A problem is one way in which a guard refuses a request. Each has a page in
// docs/problems of the same name.
type problem struct {
	code   string
	status int
	title  string
	detail string // what to do; may be extended by what was found
	// retryable: the same request with the same key may get another answer later.
	retryable bool
	// safeNewKey: the request under this key has certainly not run, so it may be sent
	// under another. An error that a retry may get although the attempt before it ran
	// (a broken connection, an expired login) is no such proof.
	safeNewKey bool
	stripe     stripeError
}

// stripeError is the type and code that Stripe's own API would use.
type stripeError struct{ kind, code string }

var (
	invalidRequest = stripeError{"invalid_request_error", ""}
	idempotency    = stripeError{"idempotency_error", ""}
	apiError       = stripeError{"api_error", ""}
)

// The problems. The titles of key-missing, key-reused and in-flight are those of the
// IETF draft.
var (
	keyMissing         = &problem{"key-missing", 400, "Idempotency-Key is missing", "Send an Idempotency-Key header: one new random value (such as a UUID) for each operation, the same value on each retry of it.", false, true, invalidRequest}
	keyMalformed       = &problem{"key-malformed", 400, "Idempotency-Key is malformed", "Send exactly one Idempotency-Key header of 1 to 255 printable ASCII characters.", false, true, invalidRequest}
	keyTooShort        = &problem{"key-too-short", 400, "Idempotency-Key is too short", "Use a random value that cannot be guessed, such as a UUID.", false, false, invalidRequest}
	keyPersonal        = &problem{"key-personal-data", 400, "Idempotency-Key looks like personal data", "Keys end up in stores and logs. Use a random value such as a UUID.", false, false, invalidRequest}
	methodOverride     = &problem{"method-override", 400, "Method override is not allowed here", "Send the request with the method you mean.", false, false, invalidRequest}
	bodyUnreadable     = &problem{"body-unreadable", 400, "Request body could not be read", "The body ended early or is not what its headers say. Nothing was reserved; send it again.", true, false, invalidRequest}
	firstSentMalformed = &problem{"first-sent-malformed", 400, "Idempotency-First-Sent is malformed", "Send an HTTP date: when the first attempt of this request was sent.", false, false, invalidRequest}
	firstSentMissing   = &problem{"first-sent-missing", 400, "Idempotency-First-Sent is missing", "Send an Idempotency-First-Sent header: when the first attempt of this request was sent, as an HTTP date, the same on each retry of it.", false, false, invalidRequest}
	callerUnidentified = &problem{"caller-unidentified", 403, "Caller is not identified", "A keyed request needs an authenticated caller, whose key it is.", false, false, stripeError{"invalid_request_error", "account_invalid"}}
	keyUnknown         = &problem{"key-unknown", 404, "There is no request under this key", "Nothing is stored under this key for this caller: it was never sent, has expired, or belongs to another caller. Send the request itself with its key to find out.", false, false, invalidRequest}
	answerEncoded      = &problem{"answer-encoded", 406, "Stored answer has another encoding", "The stored answer cannot be decoded here. Send an Accept-Encoding that allows its Content-Encoding.", false, false, invalidRequest}
	inFlight           = &problem{"in-flight", 409, "A request is outstanding for this Idempotency-Key", "The first request is still running, or was cut off a moment ago. Send the same request with the same key again after the time in Retry-After.", true, false, stripeError{"idempotency_error", "idempotency_key_in_use"}}
	outcomeUnknown     = &problem{"outcome-unknown", 409, "Outcome of the first request is unknown", "The first request may have been executed. An operator of the service has to find out what became of it; ask again with the same key, and do not send it under another.", true, false, stripeError{"idempotency_error", "idempotency_outcome_unknown"}}
	keyGone            = &problem{"key-expired", 410, "Idempotency-Key has expired", "The answer under this key is no longer kept. Find out whether the operation took place before you send it under a new key.", false, false, idempotency}
	firstSentStale     = &problem{"first-sent-stale", 412, "First attempt is too long ago", "The answer of the first attempt may be forgotten already. Find out whether the operation took place before you send it under a new key.", false, false, idempotency}
	bodyTooLarge       = &problem{"body-too-large", 413, "Request body is too large", "Nothing was reserved.", false, true, invalidRequest}
	encodingRefused    = &problem{"encoding-unsupported", 415, "Content-Encoding is not supported", "Send the body as it is, without a Content-Encoding.", false, false, invalidRequest}
	rpcUnsupported     = &problem{"rpc-unsupported", 415, "gRPC and streams cannot be guarded here", "Nothing was reserved and nothing ran. A unary call of the Connect protocol, with application/proto or application/json, can be sent here. Calls of gRPC and streams are guarded in the service itself.", false, false, invalidRequest}
	keyReused          = &problem{"key-reused", 422, "Idempotency-Key is already used", "This key belongs to a different request, which is unaffected. A retry must be the same request; a new operation needs a new key.", false, false, idempotency}
	tooManyKeys        = &problem{"too-many-new-keys", 429, "Too many new keys", "Wait for the time in Retry-After. Retries under known keys are not limited.", true, false, stripeError{"invalid_request_error", "rate_limit"}}
	tooManyActive      = &problem{"too-many-active-keys", 429, "Too many keys are kept for this caller", "Wait until some have expired. Retries under known keys are not limited.", true, false, stripeError{"invalid_request_error", "rate_limit"}}
	tooManyLookups     = &problem{"too-many-lookups", 429, "Too many requests under known keys", "Wait for the time in Retry-After.", true, false, stripeError{"invalid_request_error", "rate_limit"}}
	attemptFailed      = &problem{"attempt-failed", 500, "The attempt failed and may be sent again", "Send the same request with the same key: it runs again, and no effect of it is repeated.", true, false, apiError}
	attemptUnknown     = &problem{"attempt-unknown", 500, "The attempt failed and may have been executed", "An operator of the service has to find out what became of it; ask again with the same key, and do not send it under another.", true, false, apiError}
	noAnswer           = &problem{"no-answer", 500, "The service gave no answer", "The service's handler wrote no response, which is a defect of the service. Ask again with the same key, and do not send it under another.", true, false, apiError}
	notInTransaction   = &problem{"not-in-transaction", 500, "The answer was not committed together with its effects", "The service declares that they commit together, and this answer was in no open transaction, which is a defect of the service. The request may have been executed. Ask again with the same key, and do not send it under another.", true, false, apiError}
	notCommitted       = &problem{"not-committed", 500, "The service did not commit its answer", "Its transaction was rolled back, so nothing was executed; that it was left open is a defect of the service. Send the same request with the same key: it runs again.", true, false, apiError}
	routeUnknown       = &problem{"route-unknown", 500, "Route of this request is unknown", "No route of the server matches the request, or its guard runs before the router does, so the operation has no name to keep an answer under. This request did not run; an earlier one under this key may have. Ask again with the same key when the server has been corrected.", true, false, apiError}
	guardedTwice       = &problem{"guarded-twice", 500, "The route has two guards", "One of them has reserved the key, and the other would keep it in a transaction, which is a defect of the service. The request was not executed. Send it again with the same key when the service has been corrected.", true, false, apiError}
	requestUnreadable  = &problem{"request-unreadable", 500, "The accepted request cannot be read", "It was accepted and stored, but what is stored is damaged. It was not executed, and never will be. Send it under a new key.", false, true, apiError}
	storeUnavailable   = &problem{"store-unavailable", 503, "Idempotency store is unavailable", "The request was not executed. Send it again with the same key after the time in Retry-After.", true, false, apiError}
	recordUnreadable   = &problem{"record-unreadable", 503, "Stored outcome cannot be read", "The request was not executed again. Ask again with the same key, and do not send it under another.", true, false, apiError}
	outcomePending     = &problem{"outcome-pending", 503, "Outcome is not durable yet", "The request ran, and its outcome is being recorded. Send the same request with the same key to get it, and do not send it under another.", true, false, apiError}
	// responseNotStored is sent with the status of the first answer.
	responseNotStored = &problem{"response-not-stored", 200, "The request was executed; its response body was not stored", "The first response was streamed, too large to keep, or sent while the guard only observed. Look the result up, at its Location if it has one; do not send the request under another key.", false, false, apiError}
	// stillRunning is sent as a 202.
	stillRunning = &problem{"in-flight", 202, "The request is being processed", "Ask again with the same key, or look at the Location, after the time in Retry-After.", true, false, apiError}
)

// lookedInto has the details of problems where a resolver or a webhook finds out what
// became of the request; see [Options.Reconciled].
var lookedInto = map[*problem]string{
	outcomeUnknown: "The first request may have been executed. What became of it is being looked into; ask again with the same key, and do not send it under another.",
	attemptUnknown: "What became of it is being looked into; ask again with the same key, and do not send it under another.",
}

// problems are all of them, for documentation and tests.
var problems = []*problem{
	keyMissing, keyMalformed, keyTooShort, keyPersonal, methodOverride, bodyUnreadable, firstSentMalformed, firstSentMissing, callerUnidentified,
	keyUnknown, answerEncoded, inFlight, outcomeUnknown, keyGone, firstSentStale, bodyTooLarge, encodingRefused, rpcUnsupported, keyReused, tooManyKeys,
	tooManyActive, tooManyLookups, attemptFailed, attemptUnknown, noAnswer, notInTransaction, notCommitted, routeUnknown, guardedTwice, requestUnreadable, storeUnavailable, recordUnreadable, outcomePending, responseNotStored,
}

// A refusal is a problem with the details of one request.
type refusal struct {
	*problem
	found      string // what was found; nothing internal
	retryAfter time.Duration
	location   string
	status     int    // instead of the problem's own
	challenge  string // how the caller could authenticate
}

// unidentified returns the refusal of a request whose scope function failed. An error that
// says how the caller could authenticate makes it a 401 with that challenge.
func unidentified(err error) *refusal {
	var c interface{ Challenge() string }
	if errors.As(err, &c) {
		return &refusal{problem: callerUnidentified, status: http.StatusUnauthorized, challenge: c.Challenge()}
	}
	return &refusal{problem: callerUnidentified}
}

type problemBody struct {
	Type       string `json:"type"`
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Code       string `json:"code"`
	Retryable  bool   `json:"retryable"`
	SafeNewKey bool   `json:"safe_new_key"`
}

type stripeBody struct {
	Error stripeBodyError `json:"error"`
}

type stripeNotice struct {
	Object  string `json:"object"`
	Code    string `json:"code"`
	Message string `json:"message"`
	DocURL  string `json:"doc_url"`
}

type stripeBodyError struct {
	Type    string `json:"type"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
	DocURL  string `json:"doc_url"`
}

// write sends the refusal in the profile's envelope.
func (g *Guard) write(w http.ResponseWriter, re refusal) {
	if detail := lookedInto[re.problem]; detail != "" && g.o.Reconciled {
		p := *re.problem
		p.detail = detail
		re.problem = &p
	}
	status := re.problem.status
	switch {
	case re.problem == keyReused:
		status = g.o.Profile.Mismatch
	case re.problem == keyGone && g.o.Profile.Gone != 0:
		status = g.o.Profile.Gone
	}
	if re.status != 0 {
		status = re.status
	}
	detail := re.detail
	if re.found != "" {
		detail = re.found + " " + detail
	}
	page := g.page(re.code)

	h := w.Header()
	h["Cache-Control"] = []string{"no-store"}
	h["Link"] = []string{"<" + page + `>; rel="describedby"`}
	h["Content-Language"] = []string{"en"}
	if re.retryable {
		h["Retry-After"] = []string{seconds(re.retryAfter)}
	}
	if re.location != "" {
		h["Location"] = []string{re.location}
	}
	if re.challenge != "" {
		h["Www-Authenticate"] = []string{re.challenge}
	}
	var body any
	switch {
	case g.o.Profile.Envelope == ProblemJSON:
		h["Content-Type"] = []string{"application/problem+json"}
		body = problemBody{page, re.title, status, detail, re.code, re.retryable, re.safeNewKey}
	case status < 400: // a 202 is no error
		h["Content-Type"] = []string{"application/json"}
		body = stripeNotice{"idempotency_notice", re.code, re.title + ". " + detail, page}
	default:
		h["Content-Type"] = []string{"application/json"}
		h["Stripe-Should-Retry"] = []string{strconv.FormatBool(re.retryable)}
		body = stripeBody{stripeBodyError{re.stripe.kind, re.stripe.code, re.title + ". " + detail, page}}
	}
	text, _ := json.Marshal(body) // plain strings always marshal
	text = append(text, '\n')
	h["Content-Length"] = []string{strconv.Itoa(len(text))}
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// page returns the address of a problem's page, which is also its type.
func (g *Guard) page(code string) string {
	if g.o.ProblemBase == problemPages {
		code += ".md"
	}
	return g.o.ProblemBase + code
}

// seconds is a Retry-After: whole seconds, rounded up, at least one.
func seconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}

// A Problem is a refusal by code around a guard, such as a proxy behind it. It is sent
// in the guard's own envelope.
type Problem struct {
	// Code is stable. It is the end of the problem's type; see [Options.ProblemBase].
	Code string
	// Status is that of the response.
	Status int
	// Title says what is wrong and Detail what to do. Neither may contain anything
	// internal.
	Title, Detail string
	// Retryable: the same request with the same key may get another answer, after
	// RetryAfter, at least a second.
	Retryable  bool
	RetryAfter time.Duration
	// SafeNewKey: the request has certainly not run under this key.
	SafeNewKey bool
}

// Refuse answers with a problem, counts and reports it. Key is the client's key if
// it is known. A handler that refuses a request has to settle its execution first:
// otherwise the status decides, as for any answer of a handler.
func (g *Guard) Refuse(w http.ResponseWriter, r *http.Request, key string, p *Problem) {
	g.refuse(w, r, key, p.refusal())
}

func (p *Problem) refusal() refusal {
	kind := apiError
	if p.Status == http.StatusTooManyRequests {
		kind = stripeError{"invalid_request_error", "rate_limit"}
	}
	return refusal{
		problem:    &problem{p.Code, p.Status, p.Title, p.Detail, p.Retryable, p.SafeNewKey, kind},
		retryAfter: p.RetryAfter,
	}
}

// busyError is a problem that [Options.Busy] has returned.
type busyError struct{ *Problem }

func (e *busyError) Error() string { return e.Title }

package rpckey

import (
	"errors"
	"strconv"
	"strings"
	"time"

	codepb "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/retrysafe/retrysafe"
)

// Domain is the domain in the google.rpc.ErrorInfo of every refusal.
const Domain = "github.com/retrysafe/retrysafe"

const (
	// problemPages is where the pages of docs/problems are published.
	problemPages = "https://github.com/retrysafe/retrysafe/blob/main/docs/problems/"
	// rpcPage explains the problems that only RPCs have.
	rpcPage = "https://github.com/retrysafe/retrysafe/blob/main/docs/rpc.md#refusals"
)

// A problem is one way in which a guard refuses a call. Its code is that of the same
// problem over HTTP.
type problem struct {
	code   string
	status codepb.Code
	title  string
	detail string // what to do
	// retryable and safeNewKey are those of the same problem over HTTP.
	retryable, safeNewKey bool
}

// The problems. The code of a status is one that clients with a retry policy treat
// right. UNAVAILABLE is what they send again, and for that nothing but the same call is
// needed. UNKNOWN says that the call may have been executed.
var (
	keyMissing         = &problem{"key-missing", codepb.Code_INVALID_ARGUMENT, "The idempotency key is missing", "Send one new random value (such as a UUID) for each operation, the same value on each retry of it.", false, true}
	keyMalformed       = &problem{"key-malformed", codepb.Code_INVALID_ARGUMENT, "The idempotency key is malformed", "Send one key of 1 to 255 printable ASCII characters.", false, true}
	callerUnidentified = &problem{"caller-unidentified", codepb.Code_PERMISSION_DENIED, "The caller is not identified", "A call with a key needs an authenticated caller, whose key it is.", false, false}
	bodyTooLarge       = &problem{"body-too-large", codepb.Code_RESOURCE_EXHAUSTED, "The request is too large", "Nothing was reserved.", false, true}
	inFlight           = &problem{"in-flight", codepb.Code_UNAVAILABLE, "A call is outstanding for this idempotency key", "The first call is still running, or was cut off a moment ago. Send the same call with the same key again after the delay in RetryInfo.", true, false}
	outcomeUnknown     = &problem{"outcome-unknown", codepb.Code_UNKNOWN, "The outcome of the first call is unknown", "The first call may have been executed. An operator of the service has to find out what became of it; ask again with the same key, and do not send it under another.", true, false}
	keyGone            = &problem{"key-expired", codepb.Code_FAILED_PRECONDITION, "The idempotency key has expired", "The answer under this key is no longer kept. Find out whether the operation took place before you send it under a new key.", false, false}
	keyReused          = &problem{"key-reused", codepb.Code_FAILED_PRECONDITION, "The idempotency key is already used", "This key belongs to a different call, which is unaffected. A retry must be the same call; a new operation needs a new key.", false, false}
	attemptFailed      = &problem{"attempt-failed", codepb.Code_INTERNAL, "The attempt failed and may be sent again", "Send the same call with the same key: it runs again, and no effect of it is repeated.", true, false}
	attemptUnknown     = &problem{"attempt-unknown", codepb.Code_UNKNOWN, "The attempt failed and may have been executed", "An operator of the service has to find out what became of it; ask again with the same key, and do not send it under another.", true, false}
	storeUnavailable   = &problem{"store-unavailable", codepb.Code_UNAVAILABLE, "The idempotency store is unavailable", "The call was not executed. Send it again with the same key after the delay in RetryInfo.", true, false}
	recordUnreadable   = &problem{"record-unreadable", codepb.Code_UNAVAILABLE, "The stored outcome cannot be read", "The call was not executed again. Ask again with the same key, and do not send it under another.", true, false}
	outcomePending     = &problem{"outcome-pending", codepb.Code_UNAVAILABLE, "The outcome is not durable yet", "The call ran, and its outcome is being recorded. Send the same call with the same key to get it, and do not send it under another.", true, false}
	responseNotStored  = &problem{"response-not-stored", codepb.Code_ALREADY_EXISTS, "The call was executed; its response was not stored", "Look the result up; do not send the call under another key.", false, false}

	// These are problems of RPCs only.
	streamUnsupported  = &problem{"stream-unsupported", codepb.Code_UNIMPLEMENTED, "Streams are not guarded", "A stream has no single answer that could be stored for a retry. Nothing ran. The service may let streams pass unguarded.", false, true}
	messageUnsupported = &problem{"message-unsupported", codepb.Code_INTERNAL, "The call cannot be guarded", "Its message is not one of protobuf. Nothing ran. This is a defect of the service.", false, true}
	keyFieldMissing    = &problem{"key-field-missing", codepb.Code_INTERNAL, "The request has no field for a key", "Nothing ran. This is a defect of the service.", false, true}
	notInTransaction   = &problem{"not-in-transaction", codepb.Code_INTERNAL, "The call succeeded outside its transaction", "The service declares that effect and answer commit together, and they did not. The call may have been executed. An operator of the service has to find out what became of it; ask again with the same key, and do not send it under another.", true, false}
)

// problems are all of them, for documentation and tests.
var problems = []*problem{
	keyMissing, keyMalformed, callerUnidentified, bodyTooLarge, inFlight, outcomeUnknown, keyGone, keyReused, attemptFailed, attemptUnknown,
	storeUnavailable, recordUnreadable, outcomePending, responseNotStored, streamUnsupported, messageUnsupported, keyFieldMissing, notInTransaction,
}

// onlyRPC are the problems that have no page of their own.
var onlyRPC = map[*problem]bool{streamUnsupported: true, messageUnsupported: true, keyFieldMissing: true}

// A refusal is a problem with the details of one call.
type refusal struct {
	*problem
	found      string // what was found; nothing internal
	retryAfter time.Duration
	status     codepb.Code // instead of the problem's own
}

// refuse returns the answer for a refused call, and reports it.
func (g *Guard) refuse(procedure, key string, re *refusal) Answer {
	hash := g.report(re.code, procedure, key, true)
	code := re.problem.status
	if re.status != codepb.Code_OK {
		code = re.status
	}
	text := re.title + ". "
	if re.found != "" {
		text += re.found + " "
	}
	page := g.o.ProblemBase + re.code
	switch {
	case g.o.ProblemBase != problemPages:
	case onlyRPC[re.problem]:
		page = rpcPage
	default:
		page += ".md"
	}
	info := &errdetails.ErrorInfo{
		Reason: strings.ToUpper(strings.ReplaceAll(re.code, "-", "_")), Domain: Domain,
		Metadata: map[string]string{
			"code": re.code, "retryable": strconv.FormatBool(re.retryable), "safe_new_key": strconv.FormatBool(re.safeNewKey),
		},
	}
	if hash != "" {
		info.Metadata["key_hash"] = hash
	}
	details := []proto.Message{info}
	a := Answer{Stored: true}
	if re.retryable {
		delay := max(re.retryAfter, minDelay)
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
		if code == codepb.Code_UNAVAILABLE { // clients of gRPC that retry it wait for as long as this says
			a.Trailer = with(a.Trailer, pushbackName, strconv.FormatInt(delay.Milliseconds(), 10))
		}
	}
	details = append(details, &errdetails.Help{Links: []*errdetails.Help_Link{{Description: re.title, Url: page}}})
	a.Status = &statuspb.Status{Code: int32(code), Message: text + re.detail}
	for _, d := range details {
		packed, err := anypb.New(d)
		if err == nil { // these messages always have an encoding
			a.Status.Details = append(a.Status.Details, packed)
		}
	}
	return a
}

// report reports what was found, and returns the hash of the key.
func (g *Guard) report(code, procedure, key string, enforced bool) (hash string) {
	hash = retrysafe.HashKey(key)
	if g.o.Report != nil {
		g.o.Report(Notice{Code: code, Procedure: procedure, KeyHash: hash, Enforced: enforced})
	}
	return hash
}

const (
	// pushbackName is the trailer by which a server of gRPC says when to retry.
	pushbackName = "grpc-retry-pushback-ms"
	// minDelay is the shortest delay that a refusal asks for.
	minDelay = 100 * time.Millisecond
)

// explain turns the engine's error into a refusal, and logs why the store did not answer.
func (g *Guard) explain(procedure, key string, err error) *refusal {
	re := refusalOf(err)
	if re.problem == storeUnavailable {
		g.o.Logger.Warn("retrysafe: call was not executed", "procedure", procedure, "key", retrysafe.HashKey(key), "error", err)
	}
	return re
}

// refusalOf returns the refusal that the engine's error means.
func refusalOf(err error) *refusal {
	var refused *retrysafe.RefusedError
	re := &refusal{retryAfter: time.Second}
	if errors.As(err, &refused) && refused.RetryAfter > 0 {
		re.retryAfter = refused.RetryAfter
	}
	switch {
	case errors.Is(err, retrysafe.ErrMismatch):
		re.problem = keyReused
	case errors.Is(err, retrysafe.ErrGone):
		re.problem = keyGone
	case errors.Is(err, retrysafe.ErrInFlight), errors.Is(err, retrysafe.ErrAccepted):
		re.problem = inFlight
	case errors.Is(err, retrysafe.ErrUnknown):
		re.problem = outcomeUnknown
	case errors.Is(err, retrysafe.ErrUnreadable):
		re.problem = recordUnreadable
	default: // the store does not answer, or the client has disconnected
		re.problem = storeUnavailable
	}
	return re
}

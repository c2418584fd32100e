package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/retrysafe/retrysafe"
)

const (
	// maxTries is how often a request is sent before the step returns an error.
	maxTries = 5
	// firstTimeout is how long the first try may take, if the context allows it: a server that
	// is only slow is waited for, because what it does after a try was given up is not known. Each
	// further one may take twice as long as the one before.
	firstTimeout = 30 * time.Second
	// firstPause is the pause after the first try. Each further one is twice as long.
	firstPause = 20 * time.Millisecond
)

// send calls do, which sends one request, until the reply says what became of it. Errors
// that another try cannot change are returned at once.
func (s *Store) send(ctx context.Context, do func(ctx context.Context) error) error {
	_, err := s.sendWrite(ctx, do)
	return err
}

// sendWrite is send for a request that writes. A lost reply does not say whether the
// request was applied, so a step that is sent again has to recognise its own write. Unsure
// reports that a try before the last one may have been applied.
func (s *Store) sendWrite(ctx context.Context, do func(ctx context.Context) error) (unsure bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err // nothing was sent
	}
	for try := 0; ; try++ {
		err := sendOnce(ctx, s.timeout<<try, do)
		if err == nil || isDefinite(err) || try == maxTries-1 {
			return unsure, err
		}
		unsure = unsure || !slices.Contains(throttledCodes, codeOf(err))
		pause := time.NewTimer(firstPause<<try/2 + rand.N(firstPause<<try))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return unsure, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// sendOnce calls do with a context that ends with ctx and has none of its values: a
// connection that is being made may use it after the step has returned, when the engine
// has given ctx to another step.
func sendOnce(ctx context.Context, timeout time.Duration, do func(ctx context.Context) error) error {
	own, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return do(own)
}

// isDefinite reports whether err is an answer of the service that a further try of the
// same request does not change. What is left are lost replies, servers in trouble, and
// too many requests.
func isDefinite(err error) bool {
	code := codeOf(err)
	return code != "" && !slices.Contains(throttledCodes, code) && !slices.Contains(passingCodes, code) && statusOf(err) < 500
}

// throttledCodes are the errors by which the service refuses a request that it has not
// looked at.
var throttledCodes = []string{
	"ProvisionedThroughputExceededException", "ThrottlingException", "ThrottledException", "RequestLimitExceeded", "LimitExceededException",
}

// passingCodes are the errors after which another try is worth it. The request may have
// been applied.
var passingCodes = []string{
	"InternalServerError", "InternalFailure", "ServiceUnavailable", "ServiceUnavailableException", "TransactionConflictException",
	"RequestTimeout", "RequestTimeoutException", "ReplicatedWriteConflictException",
	"UnknownError", // the SDK could not read the answer
}

// codeOf returns the service's code for an error, or nothing if the error is not an
// answer of the service.
func codeOf(err error) string {
	if e, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err); ok {
		return e.ErrorCode()
	}
	return ""
}

func statusOf(err error) int {
	if e, ok := errors.AsType[interface {
		error
		HTTPStatusCode() int
	}](err); ok {
		return e.HTTPStatusCode()
	}
	return 0
}

// explain adds a hint to errors that the user can do something about.
func (s *Store) explain(err error) error {
	if err == nil {
		return nil
	}
	var hint string
	switch code := codeOf(err); code {
	case "ResourceNotFoundException":
		hint = fmt.Sprintf("there is no table %q; create it with: retrysafe migrate up", s.table)
	case "AccessDeniedException":
		hint = "the credentials need dynamodb:DescribeTable, DescribeTimeToLive, GetItem, BatchGetItem, PutItem, UpdateItem, DeleteItem and Scan on the table, and Query on its index"
	case "UnrecognizedClientException", "ExpiredTokenException", "InvalidSignatureException", "MissingAuthenticationTokenException", "IncompleteSignatureException":
		hint = "check the AWS credentials of this process, and its clock"
	case "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded":
		hint = "the table gets more requests than its capacity allows; raise it, or use on-demand capacity"
	case "ItemCollectionSizeLimitExceededException":
		return fmt.Errorf("%w: %w", retrysafe.ErrFull, err)
	case "ValidationException":
		if !strings.Contains(err.Error(), "tem size") {
			return err
		}
		hint = fmt.Sprintf("a record has at most 400 KB in DynamoDB; limit answers to %d KiB (max_response), and requests and checkpoints that are stored", MaxBody>>10)
	default:
		if !strings.Contains(err.Error(), "credentials") { // the SDK has no mark for credentials that it did not find
			return err
		}
		hint = "this process has no AWS credentials; they come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the role of the machine"
	}
	return &hintedError{err, hint}
}

// hintedError is an error of the driver's in one line, with a hint.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string {
	return strings.Join(strings.Fields(e.err.Error()), " ") + " (" + e.hint + ")"
}

func (e *hintedError) Unwrap() error { return e.err }

// isNoTable reports whether err says that there is no such table.
func isNoTable(err error) bool {
	_, ok := errors.AsType[*types.ResourceNotFoundException](err)
	return ok
}

package janitor

import (
	"context"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// A Resolver finds out whether an operation has happened, for example by asking the
// provider that the operation called.
type Resolver interface {
	// Resolve finds out what became of the operation of record r. It may be called
	// concurrently and repeatedly, and, after a node was stopped or cut off in the middle
	// of a question, for the same record by two nodes at once, so it must have no effects
	// of its own. It returns when ctx ends.
	//
	// An error says that the outcome could not be determined this time. So does
	// [StillUnknown], which does not count as a failure.
	//
	// If the other side knows no such operation, Resolve returns [NotHappened]. That is
	// weak evidence: the request of the first attempt may still be on its way. A
	// resolver that can make the other side refuse the operation from now on does that
	// first and returns [Tombstoned].
	Resolve(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error)
}

// A ResolverFunc is a function as a [Resolver].
type ResolverFunc func(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error)

// Resolve implements [Resolver].
func (f ResolverFunc) Resolve(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
	return f(ctx, r)
}

// Resolvers holds a [Resolver] for each operation, by [retrysafe.Record.Operation]. The
// one under "" is for all other operations. An operation without a resolver stays
// unknown and ends as a dead letter.
type Resolvers map[string]Resolver

// Resolve implements [Resolver].
func (m Resolvers) Resolve(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
	one, _ := m.of(r.Operation)
	if one == nil {
		return StillUnknown(fmt.Sprintf("no resolver for operation %q", r.Operation)), nil
	}
	return one.Resolve(ctx, r)
}

// of returns the resolver for an operation, and the name that it has in m.
func (m Resolvers) of(operation string) (one Resolver, name string) {
	if one := m[operation]; one != nil {
		return one, operation
	}
	return m[""], ""
}

// Happened says that the operation has happened. Retries get this answer.
func Happened(answer retrysafe.Result, evidence string) retrysafe.Evidence {
	return retrysafe.Evidence{Finding: retrysafe.FindingHappened, Result: answer, Text: evidence}
}

// Declined says that the other side has refused the operation for good. Retries get
// this answer.
func Declined(answer retrysafe.Result, evidence string) retrysafe.Evidence {
	return retrysafe.Evidence{Finding: retrysafe.FindingDeclined, Result: answer, Text: evidence}
}

// NotHappened says that the other side knows no such operation.
func NotHappened(evidence string) retrysafe.Evidence {
	return retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, Text: evidence}
}

// Tombstoned says that the other side knew no such operation and will refuse it from
// now on.
func Tombstoned(evidence string) retrysafe.Evidence {
	return retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofTombstone, Text: evidence}
}

// StillUnknown says that the outcome cannot be determined yet.
func StillUnknown(evidence string) retrysafe.Evidence {
	return retrysafe.Evidence{Finding: retrysafe.FindingUnknown, Text: evidence}
}

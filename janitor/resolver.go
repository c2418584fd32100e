package janitor

import (
	"context"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// A Resolver knows somebody who knows what became of an operation, for example
// the provider that it called.
type Resolver interface {
	// Resolve finds out what became of the operation that r is the record of. It
	// may be called concurrently, again and again, and for the same record by two
	// nodes at once, so it must do no harm. It returns when ctx ends.
	//
	// An error says that it could not find out this time. So does
	// [StillUnknown], which is no failure.
	//
	// That the other side knows nothing of it is [NotHappened]. It does not prove
	// much: the first attempt may still be on its way there. Whoever can make the
	// other side refuse it from now on does that first, and returns [Tombstoned].
	Resolve(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error)
}

// A ResolverFunc is a [Resolver].
type ResolverFunc func(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error)

// Resolve implements [Resolver].
func (f ResolverFunc) Resolve(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
	return f(ctx, r)
}

// Resolvers is a [Resolver] for each operation, by [retrysafe.Record.Operation]. The
// one under "" is for all others. An operation without one stays unknown, and ends
// as a dead letter like any other.
type Resolvers map[string]Resolver

// Resolve implements [Resolver].
func (m Resolvers) Resolve(ctx context.Context, r retrysafe.Record) (retrysafe.Evidence, error) {
	one := m[r.Operation]
	if one == nil {
		one = m[""]
	}
	if one == nil {
		return StillUnknown(fmt.Sprintf("nobody is there to be asked about %q", r.Operation)), nil
	}
	return one.Resolve(ctx, r)
}

// Happened says that it was done, and that retries get this answer.
func Happened(answer retrysafe.Result, evidence string) retrysafe.Evidence {
	return retrysafe.Evidence{Finding: retrysafe.FindingHappened, Result: answer, Text: evidence}
}

// Declined says that it was refused for good, and that retries get this answer.
func Declined(answer retrysafe.Result, evidence string) retrysafe.Evidence {
	return retrysafe.Evidence{Finding: retrysafe.FindingDeclined, Result: answer, Text: evidence}
}

// NotHappened says that the other side does not know of it.
func NotHappened(evidence string) retrysafe.Evidence {
	return retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, Text: evidence}
}

// Tombstoned says that the other side did not know of it, and will refuse it from
// now on.
func Tombstoned(evidence string) retrysafe.Evidence {
	return retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofTombstone, Text: evidence}
}

// StillUnknown says that it cannot be told yet.
func StillUnknown(evidence string) retrysafe.Evidence {
	return retrysafe.Evidence{Finding: retrysafe.FindingUnknown, Text: evidence}
}

// Package prove puts what retrysafe promises to the test, on the user's machine and
// database. A [Check] tries to break one promise; [Run] makes a [Report] of what came
// of it. The checks themselves are in the packages below:
//
//	prove/model   the protocol, in every order of events (Spin)
//	prove/sim     the engine in simulated worlds that a seed decides
//	prove/sweep   one fault or crash at each step of the store, one after the other
//	prove/field   real processes over a store: stormed, paused, killed
//	prove/linear  histories of a store's steps, and tenants that share keys
//	prove/servers servers killed under load, standbys promoted
//	prove/wire    the gateway: no hidden resend, requests that mean harm
//	prove/mutate  bugs that we plant, to see that they are found
//
// What breaks a promise is a [Violation], with the seed that shows it again.
package prove

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"time"
)

// A Check tries to break one promise.
type Check struct {
	// Name is what the command line calls it.
	Name string
	// Goal is its number in the list of goals, such as G9.
	Goal string
	// Shows is what holds when it passes, in one sentence.
	Shows string
	// Holds are the invariants that it watches, such as S1.
	Holds []string
	Needs Needs
	Size  Size
	// Run does it. What it finds goes into r; an error says that the check could
	// not be carried out, and so shows nothing. It ends soon after ctx does.
	Run func(ctx context.Context, env *Env, r *Result) error
}

// A Size is how often a check does what it repeats: for every change, and for a
// release. Without numbers it is a sample for a change, and all for a release.
type Size struct {
	Of              string // what it repeats, such as "kills"
	Change, Release int
}

// String says it for people.
func (s Size) String() string {
	many := func(n int, otherwise string) string {
		if n == 0 {
			return otherwise
		}
		return grouped(int64(n))
	}
	if s.Of == "" {
		return ""
	}
	return fmt.Sprintf("%s %s (--full: %s)", many(s.Change, "some"), s.Of, many(s.Release, "all"))
}

// Needs are what a check works with, apart from this program.
type Needs uint8

const (
	// Store: it puts keys into a store that it is given, of any kind.
	Store Needs = 1 << iota
	// Processes: the store must be one that processes can share.
	Processes
	// Servers: it starts servers of its own, and kills them.
	Servers
	// Source: it needs the source tree, and Go.
	Source
	// Transactions: the store must join transactions of its callers.
	Transactions
)

// Has reports whether n contains all of what.
func (n Needs) Has(what Needs) bool { return n&what == what }

// Env is what a check is given.
type Env struct {
	// Store is the URL of an empty store, for checks that need one.
	Store string
	// Seed decides whatever is left to chance.
	Seed uint64
	// Full asks for the size of a release instead of that of every change.
	Full bool
	// N, if it is not zero, says how often, whatever the size is.
	N int
	// For, if it is not zero, ends checks that could go on for ever.
	For time.Duration
	// Dir is a directory for the check alone.
	Dir string
	// Source is the root of the source tree, where there is one.
	Source string
	// Program is the retrysafe command, for checks that run it. Empty is this very
	// program.
	Program string
	// Cores, if it is not zero, is how many processors a check may keep busy; else it
	// is all that the program has.
	Cores int
	// Log hears how far it has come. It is never nil.
	Log *slog.Logger
	// Progress, if it is not nil, is told how much of the work is done. It may be
	// called from anywhere.
	Progress func(done, of int)

	size Size // of the check
}

// Times says how often to do what the check repeats: as asked, or as its size has it.
func (e *Env) Times() int {
	switch {
	case e.N > 0:
		return e.N
	case e.Full:
		return e.size.Release
	default:
		return e.size.Change
	}
}

// Workers is how many goroutines of a check may compute at the same time.
func (e *Env) Workers() int { return cmp.Or(e.Cores, runtime.GOMAXPROCS(0)) }

// Step reports progress: done of the work is finished.
func (e *Env) Step(done, of int) {
	if e.Progress != nil {
		e.Progress(done, of)
	}
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

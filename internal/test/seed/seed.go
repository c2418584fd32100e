// Package seed gives a randomised test the number that decides its draws.
package seed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Variable is the environment variable that chooses the seed: a number, or "fresh" for
// another one in each run. The default is 1, so that a change is tested with the same
// random choices everywhere; `make fresh` asks for new ones.
const Variable = "RETRYSAFE_SEED"

// For returns the seed of a test, and logs it, so that a failure can be repeated.
func For(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(1)
	switch text := os.Getenv(Variable); text {
	case "":
	case "fresh":
		seed = rand.Uint64()
	default:
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s is %q: it takes a number or \"fresh\"", Variable, text)
		}
	}
	t.Logf("the same draws again: %s=%d", Variable, seed)
	return seed
}

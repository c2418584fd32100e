// Package leftover looks for goroutines that tests have left behind.
package leftover

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is for a machine with much else to do. What is left for good stays longer.
const patience = time.Minute

// Goroutines returns an error that names the goroutines which are left, when they have
// had the time to end. Goleak alone gives them less than half a second, in which those
// that were told to end may not run at all. But is what does not count.
func Goroutines(but ...goleak.Option) error {
	for began := time.Now(); ; {
		if err := goleak.Find(but...); err == nil || time.Since(began) > patience {
			return err
		}
	}
}

// Main runs the tests of a package, for its TestMain. If they leave goroutines behind,
// they have failed.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		None()
	}
	os.Exit(code) //nolint:forbidigo // it is what TestMain would do
}

// None ends the program as failed tests do if goroutines are left.
func None() {
	if err := Goroutines(); err != nil {
		fmt.Fprintln(os.Stderr, "goroutines are left:", err)
		os.Exit(1) //nolint:forbidigo // as above
	}
}

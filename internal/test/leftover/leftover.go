// Package leftover finds goroutines that tests have leaked.
package leftover

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is a timeout for a busy machine. A leaked goroutine lives longer.
const patience = time.Minute

// Goroutines returns an error that names the goroutines which are left, after they had
// time to end. Goleak alone gives them less than half a second, in which a cancelled
// goroutine may not run at all. But excludes goroutines.
func Goroutines(but ...goleak.Option) error {
	for began := time.Now(); ; {
		if err := goleak.Find(but...); err == nil || time.Since(began) > patience {
			return err
		}
	}
}

// Main runs the tests of a package, for its TestMain. They fail if they leak
// goroutines.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		None()
	}
	os.Exit(code) //nolint:forbidigo // it is what TestMain would do
}

// None exits the program, as failed tests do, if goroutines are left.
func None() {
	if err := Goroutines(); err != nil {
		fmt.Fprintln(os.Stderr, "goroutines are left:", err)
		os.Exit(1) //nolint:forbidigo // as above
	}
}

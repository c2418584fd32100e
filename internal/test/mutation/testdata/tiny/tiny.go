// Package tiny has one line for each kind of mutant. Its tests notice some of them.
package tiny

import (
	"errors"
	"slices"
	"time"
)

const limit = 3

// Wait is a duration that no test looks at.
var Wait = 5 * time.Second

var errOver = errors.New("over the limit")

// Pair is what Order returns.
type Pair struct {
	Low, High int
}

// Within reports whether n is at most the limit and not negative.
func Within(n int) bool {
	return n <= limit && n >= 0
}

// Order returns a and b in order.
func Order(a, b int) Pair {
	if a > b {
		return pair(b, a)
	}
	return pair(a, b)
}

func pair(low, high int) Pair { return Pair{Low: low, High: high} }

// Check fails for what is not within the limit.
func Check(n int) error {
	if !Within(n) {
		return errOver
	}
	return nil
}

// Copy returns the numbers in a slice of its own, with n at the end.
func Copy(numbers []int, n int) []int {
	numbers = slices.Clone(numbers)
	numbers = append(numbers, n)
	return numbers
}

// Unused is called by no test.
func Unused(n int) int {
	n++
	return n
}

// Hang ends when n is 0, and without its statement never.
func Hang(n int) {
	for n > 0 {
		n--
	}
}

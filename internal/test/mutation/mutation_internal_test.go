package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

const tiny = "./testdata/tiny"

// The tests of a tiny package notice some bugs and let others pass: the report has exactly
// those, with what each of them changes.
func TestRun(t *testing.T) {
	t.Parallel()
	var out, progress bytes.Buffer
	// Without Hang, whose mutants take until their time is up.
	if err := command(t.Context(), []string{"-pkg", tiny, "-tests", "./testdata/other", "-file", `:([1-9]|[1-4]\d|5[0-6])$`, "-v"}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	report := out.String()
	for _, want := range []string{
		"fails without a mutant, so it did not take part: ./testdata/tiny TestFailsAlways\n",
		"survived: tiny.go:13 duration: 5 * time.Second → 1000 * 5 * time.Second\n",
		"survived: tiny.go:29 boundary: a > b → a >= b\n",
		"survived: tiny.go:29 never: a > b → false\n",
		"not reached: tiny.go:30 arguments swapped: pair(b, a) → a, b\n",
		"survived: tiny.go:40 error swallowed: errOver → nil\n",
		"survived: tiny.go:47 call left out: slices.Clone(numbers) → numbers\n",
		" killed, ",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("the report has no line %q", want)
		}
	}
	for _, noticed := range []string{
		"tiny.go:24 boundary: n <= limit → n < limit killed by TestWithin\n",
		"tiny.go:24 boundary: n >= 0 → n > 0 killed by TestWithin\n",
		"tiny.go:24 one more: limit → limit + 1 killed by TestWithin\n",
		"tiny.go:24 operand left out: n <= limit && n >= 0 → n >= 0 killed by TestWithin\n",
		"tiny.go:24 operand left out: n <= limit && n >= 0 → n <= limit killed by TestWithin\n",
		"tiny.go:29 always: a > b → true killed by TestOrder\n",
		"tiny.go:32 arguments swapped: pair(a, b) → b, a killed by TestOrder\n",
		"tiny.go:35 field left out: Low: low → (nothing) killed by TestOrder\n",
		"tiny.go:48 statement deleted: numbers = append(numbers, n) → (nothing) killed by TestCopy\n",
		"tiny.go:54 statement deleted: n++ → (nothing) killed by TestUnused\n",
	} {
		if !strings.Contains(progress.String(), noticed) {
			t.Errorf("no line %q", noticed)
		}
	}
	if t.Failed() {
		t.Logf("%s\n%s", report, &progress)
	}
}

// A draw is the same for the same seed, and each draw keeps the order of the source.
func TestDraw(t *testing.T) {
	t.Parallel()
	var all []*mutant
	for i := range 100 {
		all = append(all, &mutant{id: i})
	}
	one, two, other := draw(all, 10, 1), draw(all, 10, 1), draw(all, 10, 2)
	if len(one) != 10 || !slices.Equal(one, two) || slices.Equal(one, other) {
		t.Errorf("draws of 10 have %d, %d and %d", len(one), len(two), len(other))
	}
	if !slices.IsSortedFunc(one, func(a, b *mutant) int { return a.id - b.id }) {
		t.Error("a draw is out of order")
	}
	if len(draw(all, 0, 1)) != 100 || len(draw(all, 1000, 1)) != 100 {
		t.Error("0, and more than there are, is all of them")
	}
}

func TestFlagsAreChecked(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"-pkg", tiny, "more"}, {"-pkg", tiny, "-file", "("}, {"-pkg", tiny, "-j", "0"}, {"-pkg", "./testdata/..."}, {"-pkg", tiny, "-file", "none"}} {
		var out, progress bytes.Buffer
		if err := command(t.Context(), args, &out, &progress); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

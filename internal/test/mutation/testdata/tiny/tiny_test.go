package tiny_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/mutation/testdata/tiny"
)

func TestWithin(t *testing.T) {
	for n, want := range map[int]bool{-1: false, 0: true, 3: true, 4: false} {
		if tiny.Within(n) != want {
			t.Errorf("Within(%d) is not %v", n, want)
		}
	}
}

// Both in order: what happens to others no test asks.
func TestOrder(t *testing.T) {
	if tiny.Order(1, 2) != (tiny.Pair{Low: 1, High: 2}) {
		t.Error("1, 2 is in order")
	}
}

// Whether it fails is not asked.
func TestCheck(t *testing.T) {
	_ = tiny.Check(9)
}

// Whether the slice is a copy is not asked.
func TestCopy(t *testing.T) {
	if got := tiny.Copy([]int{1}, 2); len(got) != 2 || got[1] != 2 {
		t.Error(got)
	}
}

func TestHang(t *testing.T) { tiny.Hang(3) }

func TestFailsAlways(t *testing.T) { t.Error("it fails without a mutant") }

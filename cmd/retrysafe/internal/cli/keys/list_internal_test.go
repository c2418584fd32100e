package keys

import (
	"fmt"
	"testing"
)

func TestCursors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"!", "_w", "gICAgICAgICAgAE"} {
		if ref, ok := parseCursor(text); ok {
			t.Errorf("%q is taken for %q", text, fmt.Sprint(ref))
		}
	}
}

package tenant

import (
	"fmt"
	"testing"
	"unsafe"
)

// The scope of a tenant that was here lately needs no memory of its own, and is never that of
// another one, also where two share a slot.
func TestLabelsAreKept(t *testing.T) {
	t.Parallel()
	l := newLabels("header:")
	first := l.of("acme")
	if again := l.of("acme"); first != "header:acme" || unsafe.StringData(again) != unsafe.StringData(first) {
		t.Errorf("%q and %q are two texts", first, again)
	}
	for range 2 {
		for i := range 4 * len(l.slots) {
			name := fmt.Sprint("tenant ", i)
			if got := l.of(name); got != "header:"+name {
				t.Fatalf("%q is %q", name, got)
			}
		}
	}
}

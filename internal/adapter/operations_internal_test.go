package adapter

import (
	"fmt"
	"testing"
	"unsafe"
)

// Requests of one route share its name, in memory that is not the framework's, and a client
// that thinks of new methods does not fill the memory.
func TestOperations(t *testing.T) {
	t.Parallel()
	o, pattern := new(operations), []byte("/charges/:id")
	first := o.of("POST", unsafe.String(&pattern[0], len(pattern)))
	copy(pattern, "/!!!!!!!!!!!")
	if again := o.of("POST", "/charges/:id"); again != "POST /charges/:id" || unsafe.StringData(again) != unsafe.StringData(first) {
		t.Errorf("got %q and %q, want one text", first, again)
	}
	if got := o.of("POST", ""); got != "" {
		t.Errorf("an unknown route is called %q", got)
	}
	for i := range 2 * maxOperations {
		o.of(fmt.Sprint("M", i), "/charges/:id")
	}
	if got := o.of("PATCH", "/charges/:id"); got != "PATCH /charges/:id" {
		t.Errorf("got %q", got)
	}
	if n := len(*o.known.Load()); n > maxOperations {
		t.Errorf("%d names are kept", n)
	}
}

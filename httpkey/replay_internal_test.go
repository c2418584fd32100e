package httpkey

import (
	"slices"
	"testing"
)

// Middleware that adds a value to one header of a replay changes no other header.
func TestCopiedHeadersAreApart(t *testing.T) {
	t.Parallel()
	var c copier
	one, several, last := c.one("a"), c.of([]string{"b", "c"}), c.one("d")
	_ = append(append(one, "x"), "y")
	_ = append(several, "z")
	if one[0] != "a" || !slices.Equal(several, []string{"b", "c"}) || last[0] != "d" {
		t.Errorf("they are %v, %v and %v", one, several, last)
	}
}

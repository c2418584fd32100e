package routing

import "testing"

// A path with more readings than are looked at is one whose readings are not all known.
func TestTooManyReadingsAreNotAll(t *testing.T) {
	t.Parallel()
	const path = `/p/%25252e/b;x///%25252e//%2e\`
	if found, ok := readings(path); len(found) != maxReadings || ok {
		t.Errorf("%s has %d readings, all of them: %v; want the limit of %d, and not all", path, len(found), ok, maxReadings)
	}
}

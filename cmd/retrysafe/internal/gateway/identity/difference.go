package identity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Difference is a setting that is not what the store says.
type Difference struct {
	// Setting is the field of the configuration.
	Setting string
	// Noted is its value in the store, Here that of the configuration.
	Noted, Here string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s is %s in the store, and %s in the configuration", d.Setting, d.Noted, d.Here)
}

// A DifferentError says which settings are not what the store says.
type DifferentError struct{ Differences []Difference }

func (e *DifferentError) Error() string {
	return "identity: the keys of the store were stored under other settings: " + Describe(e.Differences)
}

// Describe returns differences as a text.
func Describe(all []Difference) string {
	texts := make([]string, len(all))
	for i, d := range all {
		texts[i] = d.String()
	}
	return strings.Join(texts, "; ")
}

// Differences returns what differs from the settings that a store has noted, by the
// names of the settings.
func (s Settings) Differences(noted Settings) []Difference {
	var all []Difference
	names := slices.Concat(slices.Collect(maps.Keys(s)), slices.Collect(maps.Keys(noted)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if s[name] != noted[name] {
			absent := defaultOf(name)
			all = append(all, Difference{name, cmp.Or(noted[name], absent), cmp.Or(s[name], absent)})
		}
	}
	return all
}

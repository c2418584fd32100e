package identity

import (
	"net/http"
	"slices"

	"github.com/retrysafe/retrysafe/httpkey"
)

// Fields are a choice of what counts in a fingerprint, in one spelling. A record names
// the choice that it was stored under, by a hash; the store notes what the choice was.
type Fields struct {
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	Headers []string `json:"headers,omitempty"`
}

// FieldsOf returns the choices of a gateway's routes, each once.
func FieldsOf(choices []httpkey.Fields) []Fields {
	var all []Fields
	for _, c := range choices {
		f := Fields{Include: sorted(c.Include), Exclude: sorted(c.Exclude)}
		for _, name := range c.Headers {
			f.Headers = append(f.Headers, http.CanonicalHeaderKey(name))
		}
		f.Headers = sorted(f.Headers)
		if len(f.Include)+len(f.Exclude)+len(f.Headers) > 0 && !slices.ContainsFunc(all, f.equal) {
			all = append(all, f)
		}
	}
	return all
}

// Choices returns the choices that records may have been stored under.
func (id Identity) Choices() []httpkey.Fields {
	var all []httpkey.Fields
	for _, f := range id.Fields {
		all = append(all, httpkey.Fields(f))
	}
	return all
}

func (f *Fields) equal(o Fields) bool {
	return slices.Equal(f.Include, o.Include) && slices.Equal(f.Exclude, o.Exclude) && slices.Equal(f.Headers, o.Headers)
}

// maxFields is how many choices a store notes, unless more are in force. The records of
// older ones have most likely expired; a record whose choice is not known is refused.
const maxFields = 64

// merge returns the noted choices with those in force, and reports whether there is a new
// one.
func merge(noted, inForce []Fields) (all []Fields, added bool) {
	all = slices.Clone(noted)
	for _, f := range inForce {
		if !slices.ContainsFunc(all, f.equal) {
			all, added = append(all, f), true
		}
	}
	if added {
		for i := 0; i < len(all) && len(all) > maxFields; {
			if slices.ContainsFunc(inForce, all[i].equal) {
				i++
				continue
			}
			all = slices.Delete(all, i, i+1)
		}
	}
	return all, added
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

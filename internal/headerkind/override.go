package headerkind

import (
	"iter"
	"net/http"
	"strings"
)

// overrides are the headers that ask a service to take a request for one of another
// method.
var overrides = [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// Overrides returns the headers that ask a service to take a request for one of another
// method.
func Overrides() []string { return overrides[:] }

// OverrideMethods yields the methods, in capitals, that a request's headers ask to take
// it for. Services differ in how they read a list or a quoted value, so each word of a
// line is yielded, and the line itself. A line without a word yields one empty method.
func OverrideMethods(h http.Header) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, name := range overrides {
			for _, line := range h[name] {
				whole := strings.ToUpper(strings.TrimSpace(line))
				if !yield(whole) {
					return
				}
				for word := range strings.FieldsFuncSeq(whole, notInMethod) {
					if word != whole && !yield(word) {
						return
					}
				}
			}
		}
	}
}

// notInMethod reports whether r ends a method's name in a list of them.
func notInMethod(r rune) bool {
	return (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

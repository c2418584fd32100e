package headerkind

import (
	"net/http"
	"strings"
)

// overrides are the headers that ask a service to take a request for one of another
// method.
var overrides = [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// Overrides returns the headers that ask a service to take a request for one of another
// method.
func Overrides() []string { return overrides[:] }

// OverrideMethods returns the methods, in capitals, that a request's headers ask to take
// it for. Services differ in how they read a list or a quoted value, so each word of a
// line is a method, and so is the line itself. A line without a word has one empty method.
func OverrideMethods(h http.Header) (methods []string) {
	for _, name := range overrides {
		for _, line := range h[name] {
			whole := strings.ToUpper(strings.TrimSpace(line))
			methods = append(methods, whole)
			for word := range strings.FieldsFuncSeq(whole, notInMethod) {
				if word != whole {
					methods = append(methods, word)
				}
			}
		}
	}
	return methods
}

// notInMethod reports whether r ends a method's name in a list of them.
func notInMethod(r rune) bool {
	return (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

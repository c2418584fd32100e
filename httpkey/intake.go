package httpkey

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/headerkind"
	"github.com/retrysafe/retrysafe/internal/keysyntax"
)

// call reads what the engine needs of a request: the key, its scope and the
// fingerprint. The returned body uses the memory of s. A refusal reserves nothing.
func (g *Guard) call(r *http.Request, s *scratch) (c retrysafe.Call, body []byte, re *refusal) {
	if g.overrides(r) {
		return c, nil, &refusal{problem: methodOverride}
	}
	lines := r.Header[g.o.Header]
	switch {
	case len(lines) == 0 && g.o.Optional:
		return c, nil, nil
	case carriesRPC(r.Header):
		return c, nil, &refusal{problem: rpcUnsupported}
	case len(lines) == 0:
		return c, nil, &refusal{problem: keyMissing}
	}
	if len(lines) > 1 {
		return c, nil, &refusal{problem: keyMalformed, found: "There is more than one header line."}
	}
	key, err := keysyntax.Parse(lines[0], g.o.Profile.Opaque, g.o.Strict)
	if err != nil {
		return c, nil, &refusal{problem: keyMalformed, found: "The key was not accepted: " + err.Error() + "."}
	}
	if re := g.checkKeyQuality(r, key); re != nil {
		return c, nil, re
	}
	if re := g.checkFirstSent(r); re != nil {
		return c, nil, re
	}
	c.Key = key
	if c.Operation = g.operation(r); c.Operation == "" {
		g.counts.occasionally(func() {
			g.o.Logger.Error("retrysafe: route of a guarded request is unknown; place the guard behind the router, on the route itself", "method", r.Method, "path", r.URL.EscapedPath())
		})
		return c, nil, &refusal{problem: routeUnknown, retryAfter: time.Minute}
	}
	if c.Scope, err = g.scopeOf(r, c.Operation); err != nil {
		if re := refusalIn(err); re != nil {
			return c, nil, re
		}
		g.o.Logger.Warn("retrysafe: caller is not identified", "operation", c.Operation, "error", err, "fix", unidentifiedFix(err))
		return c, nil, unidentified(err)
	}
	c.Operation = cutOperation(c.Operation)
	if run, ok := retrysafe.FromContext(r.Context()); ok && run.Ref() == c.Ref {
		return retrysafe.Call{}, nil, nil // an outer guard has reserved this key already
	}
	if body, err = g.readBody(r, s.body); err != nil {
		return c, nil, g.refuseBody(err)
	}
	s.body = body
	c.Fingerprint = s.fingerprint(intent{r, body, c.Scope}, &g.fields)
	c.Refingerprint = s.refingerprint
	return c, body, nil
}

// unidentifiedFix returns what to do about a caller that is not identified. A gateway, whose
// scope function is made from its configuration, says it by an interface of its own.
func unidentifiedFix(err error) string {
	var known interface{ Fix() string }
	if errors.As(err, &known) {
		return known.Fix()
	}
	return "if this caller has authenticated, place authentication before the guard, where the scope function finds its result"
}

// refuseBody returns the refusal of a body that could not be read.
func (g *Guard) refuseBody(err error) *refusal {
	if re := refusalIn(err); re != nil {
		return re
	}
	var outer *http.MaxBytesError
	switch {
	case errors.As(err, &outer):
		return &refusal{problem: bodyTooLarge, found: fmt.Sprintf("The limit is %d bytes.", outer.Limit)}
	case errors.Is(err, errTooLarge):
		return &refusal{problem: bodyTooLarge, found: fmt.Sprintf("The limit is %d bytes.", g.o.MaxRequest)}
	case errors.Is(err, errEncoding):
		return &refusal{problem: encodingRefused}
	default:
		return &refusal{problem: bodyUnreadable}
	}
}

// refusalIn returns the refusal that an error of a [ScopeFunc] or of a body's reader
// carries, or nil. Code around a guard, such as a gateway that limits what a caller may
// hold, refuses a request in this way before anything is reserved.
func refusalIn(err error) *refusal {
	var carrier interface{ Problem() *Problem }
	if !errors.As(err, &carrier) {
		return nil
	}
	re := carrier.Problem().refusal()
	return &re
}

// overrides reports whether a request names a guarded method in an override header, or
// spells its own method in another case. Either could bypass the guard or its
// fingerprint.
func (g *Guard) overrides(r *http.Request) bool {
	if method := strings.ToUpper(r.Method); method != r.Method && slices.Contains(g.o.Methods, method) {
		return true
	}
	guarded := slices.Contains(g.o.Methods, r.Method)
	for _, method := range headerkind.OverrideMethods(r.Header) {
		if guarded || slices.Contains(g.o.Methods, method) {
			return true
		}
	}
	return false
}

// checkKeyQuality refuses or reports keys that are easy to guess or look like personal
// data.
func (g *Guard) checkKeyQuality(r *http.Request, key string) *refusal {
	if g.o.ShortKeys != StrictnessIgnore && len(key) < g.o.MinKeyLength {
		if g.o.ShortKeys == StrictnessRefuse {
			return &refusal{problem: keyTooShort, found: fmt.Sprintf("It has %d characters; at least %d are needed.", len(key), g.o.MinKeyLength)}
		}
		g.warn(r, key, keyTooShort)
	}
	if g.o.PersonalData != StrictnessIgnore && keysyntax.LooksPersonal(key) {
		if g.o.PersonalData == StrictnessRefuse {
			return &refusal{problem: keyPersonal}
		}
		g.warn(r, key, keyPersonal)
	}
	return nil
}

// checkFirstSent refuses a request whose first attempt is older than the retention, or
// that does not say when it was if it has to.
func (g *Guard) checkFirstSent(r *http.Request) *refusal {
	if !g.o.FirstSent && !g.o.RequireFirstSent {
		return nil
	}
	lines := r.Header[firstSentHeader]
	if len(lines) == 0 {
		if g.o.RequireFirstSent {
			return &refusal{problem: firstSentMissing}
		}
		return nil
	}
	sent, err := http.ParseTime(lines[0])
	switch {
	case err != nil || len(lines) > 1:
		return &refusal{problem: firstSentMalformed}
	case time.Since(sent) > g.policy.Retention:
		return &refusal{problem: firstSentStale}
	}
	return nil
}

func (g *Guard) operation(r *http.Request) string {
	switch {
	case g.o.Operation != nil:
		return g.o.Operation(r)
	case r.Pattern == "":
		return r.Method + " " + r.URL.EscapedPath() // visible ASCII, which every store accepts
	case strings.HasPrefix(r.Pattern, r.Method):
		return r.Pattern
	default:
		return r.Method + " " + r.Pattern
	}
}

// scopePart separates the parts of a scope. It cannot occur inside one.
const scopePart = "\x1f"

const (
	maxScope     = 1024 // the engine's limit
	maxOperation = 256  // a longer path is cut
)

// cutOperation returns the name of an operation as it is stored.
func cutOperation(operation string) string {
	if len(operation) > maxOperation {
		return strings.ToValidUTF8(operation[:maxOperation], "")
	}
	return operation
}

var errNoScope = errors.New("the scope is empty, too long or contains a control character")

// scopeOf returns the scope of the request's key: the tenant, and where the options say
// so the operation and the principal.
func (g *Guard) scopeOf(r *http.Request, operation string) (string, error) {
	scope, err := part(g.scope, r)
	if err != nil {
		return "", err
	}
	if g.o.PerOperation {
		if len(operation) > maxOperation || strings.ContainsFunc(operation, isControl) {
			sum := sha256.Sum256([]byte(operation))
			operation = "sha256 " + hex.EncodeToString(sum[:])
		}
		scope += scopePart + "op" + scopePart + operation
	}
	if g.o.Bind != nil {
		principal, err := part(g.o.Bind, r)
		if err != nil {
			return "", err
		}
		scope += scopePart + "by" + scopePart + principal
	}
	if len(scope) > maxScope {
		return "", errNoScope
	}
	return scope, nil
}

// part returns one part of a scope. It has no control character. So a part cannot look
// like several parts, nor like a scope of retrysafe's own, which begins with a zero
// byte.
func part(f ScopeFunc, r *http.Request) (string, error) {
	s, err := f(r)
	if err == nil && (s == "" || strings.ContainsFunc(s, isControl)) {
		err = errNoScope
	}
	return s, err
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }

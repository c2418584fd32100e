package conform

import (
	"bytes"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// coverage returns the checks of the further operations: a retry of each must not run
// again. Values from the answers to one operation fill the next ones.
func coverage(s *settings) (all []check) {
	known := map[string]string{}
	for i := range s.Operations {
		op := &s.Operations[i]
		now := op.fill(known) // again when it runs; the retry is the same as the first request
		request := func(t *trial) *message { return t.operation(op, now) }
		all = append(all, check{
			id: "coverage/" + op.Name, clause: contract, severity: critical,
			says:    "A retry of " + op.Name + " does not run it again.",
			missing: func(*settings) string { return op.Missing },
			plan:    fixed(once("first", "the operation under a new key", request), once("retry", "the same request again", request)),
			run: func(t *trial) finding {
				now = op.fill(known)
				if name := unfilled.FindString(now.path); name != "" {
					return badSetup("no answer before this operation says what %s is", name)
				}
				first := t.send("first")
				if !first.ok() {
					return badSetup("the operation was answered %s", first)
				}
				learn(known, op, first)
				retry := t.send("retry")
				switch {
				case t.replayed(retry) && sameDocument(retry.body, first.body):
					return hold("the retry got the stored answer")
				case retry.ok() && sameDocument(retry.body, first.body):
					t.weak = weakAlike
					return observed("the retry got the same answer, which is not marked as a replay: it may have run again")
				case op.Request.Method == http.MethodPut || op.Request.Method == http.MethodDelete:
					return observed("%s may be repeated by definition; the retry was answered %s", op.Request.Method, retry)
				case retry.ok():
					return fails("not protected: the retry ran again, and was answered with something else")
				}
				return fails("not protected: the retry was answered %s", retry)
			},
		})
	}
	return all
}

var (
	unfilled = regexp.MustCompile(`\{[^{}]+\}`)
	nameOnly = regexp.MustCompile(`[^a-z0-9]`)
)

// plainName returns a name without case and punctuation, so that orderId is order_id.
func plainName(name string) string { return nameOnly.ReplaceAllString(strings.ToLower(name), "") }

type filled struct {
	path string
	body []byte
}

// fill puts known values into the path and the body of an operation.
func (o *Operation) fill(known map[string]string) filled {
	parts := strings.Split(o.Request.Path, "/")
	for i, part := range parts {
		parts[i] = unfilled.ReplaceAllStringFunc(part, func(written string) string {
			name := plainName(written)
			if v, ok := known[name]; ok && name != "id" {
				return url.PathEscape(v)
			}
			if i > 0 { // /orders/{id} is the order's
				if v, ok := known[singular(parts[i-1])+"id"]; ok {
					return url.PathEscape(v)
				}
			}
			if v, ok := known[name]; ok {
				return url.PathEscape(v)
			}
			return written
		})
	}
	return filled{strings.Join(parts, "/"), fillBody(o.Request.Body, known)}
}

// fillBody puts known values into the members of a body whose names end in "id".
func fillBody(body []byte, known map[string]string) []byte {
	doc, err := parseNode(body)
	if err != nil {
		return body
	}
	changed := false
	for i, name := range doc.names {
		v, ok := known[plainName(name)]
		if m := doc.members[i]; ok && plainName(name) != "id" && strings.HasSuffix(plainName(name), "id") && (m.kind == '"' || m.kind == '0' && isNumber(v)) {
			m.text, changed = v, true
		}
	}
	if !changed {
		return body
	}
	return doc.bytes(writing{})
}

// learn notes the identities in an answer: order_id as it is, and id as that of the
// resource that the path names.
func learn(known map[string]string, o *Operation, a *answer) {
	resource := ""
	for part := range strings.SplitSeq(o.Request.Path, "/") {
		if part != "" && !strings.Contains(part, "{") {
			resource = singular(part)
		}
	}
	if at := a.header.Get("Location"); at != "" {
		if u, err := url.Parse(at); err == nil {
			parts := strings.Split(strings.TrimSuffix(u.Path, "/"), "/")
			known[resource+"id"] = parts[len(parts)-1]
		}
	}
	doc, err := parseNode(bytes.TrimSpace(a.body))
	if err != nil {
		return
	}
	for i, name := range doc.names {
		m, plain := doc.members[i], plainName(name)
		if m.kind != '"' && m.kind != '0' {
			continue
		}
		switch {
		case plain == "id":
			known["id"], known[resource+"id"] = m.text, m.text
		case strings.HasSuffix(plain, "id"):
			known[plain] = m.text
		}
	}
}

// singular returns the name of one of the things that a path segment names.
func singular(segment string) string {
	name := plainName(segment)
	if one, ok := strings.CutSuffix(name, "ies"); ok {
		return one + "y"
	}
	return strings.TrimSuffix(name, "s")
}

// operation returns the request of an operation, under the trial's first key.
func (t *trial) operation(o *Operation, f filled) *message {
	m := t.op(0)
	m.method, m.path, m.body = strings.ToUpper(o.Request.Method), f.path, f.body
	if m.method == "" {
		m.method = t.s.Request.Method
	}
	if len(f.body) == 0 {
		m.header.Del("Content-Type")
	} else if m.header.Get("Content-Type") == "" {
		m.header.Set("Content-Type", "application/json")
	}
	return m.with(o.Request.Header).message()
}

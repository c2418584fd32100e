package dynamofake

import (
	"regexp"
	"slices"
	"strings"
)

// expressions are those of one request, with their names and values.
type expressions struct {
	in   *request
	used map[string]bool
	rest []string // tokens
	err  error
}

func newExpressions(in *request) *expressions { return &expressions{in: in, used: map[string]bool{}} }

var tokens = regexp.MustCompile(`[#:]?[A-Za-z0-9_]+|<=|>=|<>|[=<>(),]`)

// allUsed returns an error if a name or a value is in no expression, as the service does.
func (e *expressions) allUsed() error {
	for name := range e.in.ExpressionAttributeNames {
		if !e.used[name] {
			return invalid("Value provided in ExpressionAttributeNames unused in expressions: keys: {%s}", name)
		}
	}
	for name := range e.in.ExpressionAttributeValues {
		if !e.used[name] {
			return invalid("Value provided in ExpressionAttributeValues unused in expressions: keys: {%s}", name)
		}
	}
	return nil
}

func (e *expressions) begin(text string) { e.rest, e.err = tokens.FindAllString(text, -1), nil }

func (e *expressions) peek() string {
	if len(e.rest) == 0 {
		return ""
	}
	return e.rest[0]
}

func (e *expressions) next() string {
	token := e.peek()
	if token != "" {
		e.rest = e.rest[1:]
	}
	return token
}

func (e *expressions) expect(want string) {
	if got := e.next(); !strings.EqualFold(got, want) && e.err == nil {
		e.err = invalid("Invalid expression: %q in place of %q", got, want)
	}
}

// attribute reads the name of an attribute.
func (e *expressions) attribute() string {
	token := e.next()
	name, ok := e.in.ExpressionAttributeNames[token]
	if e.used[token] = true; !ok && e.err == nil {
		e.err = invalid("An expression attribute name used in the document path is not defined: %s", token)
	}
	return name
}

// operand reads a value, or the attribute of an item.
func (e *expressions) operand(it item) (value, bool) {
	token := e.peek()
	if !strings.HasPrefix(token, ":") {
		v, ok := it[e.attribute()]
		return v, ok
	}
	e.next()
	e.used[token] = true
	v, ok := e.in.ExpressionAttributeValues[token]
	if !ok && e.err == nil {
		e.err = invalid("An expression attribute value used in expression is not defined: %s", token)
	}
	return v, ok
}

// condition reports whether an expression holds for an item. The empty one does.
func (e *expressions) condition(text string, it item) (bool, error) {
	if text == "" {
		return true, nil
	}
	e.begin(text)
	holds := e.or(it)
	if len(e.rest) > 0 && e.err == nil {
		e.err = invalid("Invalid expression: %q is left", e.rest)
	}
	return holds && e.err == nil, e.err
}

func (e *expressions) or(it item) bool {
	holds := e.and(it)
	for strings.EqualFold(e.peek(), "OR") {
		e.next()
		right := e.and(it)
		holds = holds || right
	}
	return holds
}

func (e *expressions) and(it item) bool {
	holds := e.term(it)
	for strings.EqualFold(e.peek(), "AND") {
		e.next()
		right := e.term(it)
		holds = holds && right
	}
	return holds
}

func (e *expressions) term(it item) bool {
	switch token := e.peek(); token {
	case "(":
		e.next()
		holds := e.or(it)
		e.expect(")")
		return holds
	case "attribute_exists", "attribute_not_exists":
		e.next()
		e.expect("(")
		_, exists := it[e.attribute()]
		e.expect(")")
		return exists == (token == "attribute_exists")
	}
	left, exists := e.operand(it)
	operator := strings.ToUpper(e.next())
	if operator == "IN" {
		return e.in1(it, left, exists)
	}
	right, ok := e.operand(it)
	if !exists || !ok || left.kind != right.kind {
		return operator == "<>"
	}
	c := left.compare(right)
	switch operator {
	case "=":
		return c == 0
	case "<>":
		return c != 0
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	case ">=":
		return c >= 0
	}
	if e.err == nil {
		e.err = invalid("Invalid expression: operator %q", operator)
	}
	return false
}

// in1 reads the list of an IN, and reports whether it has the value.
func (e *expressions) in1(it item, v value, exists bool) bool {
	e.expect("(")
	var list []value
	for e.err == nil {
		one, _ := e.operand(it)
		list = append(list, one)
		if e.peek() != "," {
			break
		}
		e.next()
	}
	e.expect(")")
	return exists && slices.Contains(list, v)
}

// update applies an update expression: SET and REMOVE, each attribute once.
func (e *expressions) update(text string, it item) error {
	e.begin(text)
	was, seen := it.clone(), map[string]bool{}
	for section := strings.ToUpper(e.next()); section != "" && e.err == nil; section = strings.ToUpper(e.next()) {
		if section != "SET" && section != "REMOVE" {
			return invalid("Invalid UpdateExpression: %q", section)
		}
		for e.err == nil {
			name := e.attribute()
			if seen[name] {
				return invalid("Invalid UpdateExpression: Two document paths overlap with each other: %s", name)
			}
			seen[name] = true
			if section == "REMOVE" {
				delete(it, name)
			} else {
				e.expect("=")
				if v, ok := e.operand(was); ok {
					it[name] = v
				}
			}
			if e.peek() != "," {
				break
			}
			e.next()
		}
	}
	return e.err
}

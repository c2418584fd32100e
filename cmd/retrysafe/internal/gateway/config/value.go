package config

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A field is a name that the file may have, and the place in a Config that it
// fills.
type field struct {
	name string
	value
}

// A value reads what one field says.
type value interface {
	// read takes it from the file, or tells r what is wrong with it.
	read(r *reader, path string, n *yaml.Node)
}

// A leaf is a value without fields of its own.
type leaf interface {
	value
	// write returns it as the file would have it, or nil if it says nothing.
	write() *yaml.Node
}

// written returns what a leaf says, and nothing of what has fields.
func written(v value) *yaml.Node {
	if l, ok := v.(leaf); ok {
		return l.write()
	}
	return nil
}

// A literal is a scalar after ${ENV} was filled in. Its tag is what YAML takes it
// for, or empty if it is not for YAML to say: it came from outside the file.
type literal struct{ text, tag string }

// A scalar is a value of one word.
type scalar[T any] struct {
	to *T
	// parse returns the value, or what is wrong with the literal.
	parse func(l literal) (v T, wrong string)
	print func(T) string
	tag   string
}

func (s scalar[T]) read(r *reader, path string, n *yaml.Node) {
	l, ok := r.literal(path, n)
	if !ok {
		return
	}
	v, wrong := s.parse(l)
	if wrong != "" {
		r.refuse(path, n, "%s %s", quote(r.resolve(n).Value), wrong) // as it is written: the environment may hold a secret
		return
	}
	*s.to = v
}

func (s scalar[T]) write() *yaml.Node {
	text := s.print(*s.to)
	if s.tag == strTag {
		text = dollars(text)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: s.tag, Value: text}
}

// What YAML calls the types of scalars.
const (
	strTag   = "!!str"
	boolTag  = "!!bool"
	intTag   = "!!int"
	floatTag = "!!float"
	nullTag  = "!!null"
	mergeTag = "!!merge"
)

// text is any text.
func text(to *string) value { return scalar[string]{to, parseText, same, strTag} }

func same(s string) string { return s }

func parseText(l literal) (string, string) {
	switch {
	case l.tag == intTag || l.tag == floatTag:
		return "", "is a number where a text belongs; put it in quotes"
	case l.tag != "" && l.tag != strTag && l.tag != mergeTag: // as a value "<<" is a text
		return "", "is not a text; put it in quotes"
	}
	return l.text, wrongText(l.text)
}

// wrongText says what is wrong with a text of any kind. None that is of use here
// has a line break or another control character in it.
func wrongText(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "is not valid UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "has a line break or another control character in it"
	}
	return ""
}

// flag is true or false.
func flag(to *bool) value {
	return scalar[bool]{to, func(l literal) (bool, string) {
		switch {
		case l.tag == strTag && (l.text == "true" || l.text == "false"):
			return false, "is a text; write it without quotes"
		case l.text == "true":
			return true, ""
		case l.text == "false":
			return false, ""
		}
		spelled := map[string]string{"yes": "true", "on": "true", "1": "true", "no": "false", "off": "false", "0": "false"}
		if meant := spelled[strings.ToLower(l.text)]; meant != "" {
			return false, "is neither true nor false; did you mean " + meant + "?"
		}
		return false, "is neither true nor false" + didYouMean(l.text, []string{"true", "false"})
	}, strconv.FormatBool, boolTag}
}

// firstSent is a flag that may ask for more.
func firstSent(to *FirstSent) value {
	names := [...]string{FirstSentIgnored: "false", FirstSentChecked: "true", FirstSentRequired: "required"}
	return scalar[FirstSent]{to, func(l literal) (FirstSent, string) {
		if l.tag == strTag && (l.text == "true" || l.text == "false") {
			return 0, "is a text; write it without quotes"
		}
		if i := slices.Index(names[:], l.text); i >= 0 {
			return FirstSent(i), ""
		}
		return 0, "is none of false, true, required" + didYouMean(l.text, names[:])
	}, func(v FirstSent) string { return names[v] }, ""}
}

// count is a whole number.
func count(to *int) value {
	return scalar[int]{to, func(l literal) (int, string) {
		n, err := strconv.Atoi(l.text)
		switch {
		case err != nil:
			return 0, "is not a whole number such as 100"
		case l.tag == strTag:
			return 0, "is a text; write it without quotes"
		}
		return n, ""
	}, strconv.Itoa, intTag}
}

// rate is how often in a second.
func rate(to *float64) value {
	return scalar[float64]{to, func(l literal) (float64, string) {
		n, err := strconv.ParseFloat(l.text, 64)
		switch {
		case err != nil || math.IsNaN(n) || math.Abs(n) > 1e9:
			return 0, "is not a number such as 100 or 0.5"
		case l.tag == strTag:
			return 0, "is a text; write it without quotes"
		}
		return n, ""
	}, func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }, ""}
}

// span is a duration.
func span(to *time.Duration) value {
	return scalar[time.Duration]{to, func(l literal) (time.Duration, string) {
		if d, ok := parseSpan(l.text); ok {
			return d, ""
		}
		if _, err := strconv.ParseFloat(l.text, 64); err == nil {
			return 0, "has no unit; write a duration such as " + l.text + "s, 15m, 24h or 7d"
		}
		return 0, "is not a duration such as 30s, 15m, 24h or 7d"
	}, printSpan, ""}
}

// size is a number of bytes.
func size(to *int64) value { return scalar[int64]{to, readSize, printSize, ""} }

func readSize(l literal) (int64, string) {
	if n, ok := parseSize(l.text); ok {
		return n, ""
	}
	return 0, "is not a size such as 65536, 64KiB, 64KB or 1MiB"
}

// room is a size of which 0 says that there is none, which is kept as -1.
func room(to *int64) value {
	return scalar[int64]{to, func(l literal) (int64, string) {
		n, wrong := readSize(l)
		if n == 0 {
			n = -1
		}
		return n, wrong
	}, func(n int64) string { return printSize(max(n, 0)) }, ""}
}

// An option is one of the names that a choice knows.
type option[T any] struct {
	name  string
	value T
}

// oneOf is a choice among names. Others that a reader might expect are refused
// with the reason.
func oneOf[T comparable](to *T, others map[string]string, options ...option[T]) value {
	var names []string
	for _, o := range options {
		names = append(names, o.name)
	}
	return choice[T]{scalar[T]{to: to, tag: strTag, parse: func(l literal) (T, string) {
		for _, o := range options {
			if o.name == l.text {
				return o.value, ""
			}
		}
		var none T
		if why := others[l.text]; why != "" {
			return none, why
		}
		return none, "is none of " + strings.Join(names, ", ") + didYouMean(l.text, names)
	}, print: func(v T) string {
		for _, o := range options {
			if o.value == v {
				return o.name
			}
		}
		return ""
	}}}
}

// words is a choice that is kept by its name.
func words(to *string, names ...string) value {
	var options []option[string]
	for _, name := range names {
		options = append(options, option[string]{name, name})
	}
	return oneOf(to, nil, options...)
}

// choice says nothing where it holds none of its options.
type choice[T any] struct{ scalar[T] }

func (c choice[T]) write() *yaml.Node {
	if n := c.scalar.write(); n.Value != "" {
		return n
	}
	return nil
}

// list is a list of scalars.
type list[T any] struct {
	to   *[]T
	item func(*T) value
}

func texts(to *[]string) value { return list[string]{to, text} }

func (l list[T]) read(r *reader, path string, n *yaml.Node) {
	items, ok := r.items(path, n)
	if !ok {
		return
	}
	var all []T
	for i, item := range items {
		var v T
		r.mark(element(path, i), item)
		l.item(&v).read(r, element(path, i), item)
		all = append(all, v)
	}
	*l.to = all
}

func (l list[T]) write() *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for i := range *l.to {
		n.Content = append(n.Content, written(l.item(&(*l.to)[i])))
	}
	return n
}

// prefix is a range of addresses, or one address.
func prefix(to *netip.Prefix) value {
	return scalar[netip.Prefix]{to, func(l literal) (netip.Prefix, string) {
		p, err := netip.ParsePrefix(l.text)
		if a, e := netip.ParseAddr(l.text); e == nil {
			p, err = netip.PrefixFrom(a.WithZone(""), a.BitLen()), nil
		}
		switch {
		case err != nil:
			return p, "is not a range of addresses such as 10.0.0.0/8 or fd00::/8, nor an address"
		case p.Addr().Is4In6():
			return p, "is an IPv4 address in IPv6's clothes; write it as IPv4"
		case p != p.Masked():
			return p, "has bits behind its mask; did you mean " + p.Masked().String() + "?"
		}
		return p, ""
	}, netip.Prefix.String, strTag}
}

// secret is a text that is printed only if asked for.
type secret[T ~string] struct {
	scalar[T]
	redact func(string) string
}

func secretText[T ~string](to *T, redact func(string) string) value {
	return secret[T]{scalar[T]{to, nil, func(v T) string { return string(v) }, strTag}, redact}
}

func (s secret[T]) read(r *reader, path string, n *yaml.Node) {
	l, ok := r.literal(path, n)
	if !ok {
		return
	}
	v, wrong := parseText(l)
	if wrong != "" {
		r.refuse(path, n, "what is there %s", wrong)
		return
	}
	*s.to = T(v)
	if to := r.resolve(n); r.flag == "" && soleReference(to.Value) {
		r.src.refs[path] = reference{to.Value, v}
	}
}

// current is the secret, veil what may be shown of it.
func (s secret[T]) current() string { return string(*s.to) }
func (s secret[T]) veil() string    { return s.redact(string(*s.to)) }

// concealed is what print asks of a value that may be a secret.
type concealed interface {
	current() string
	veil() string
}

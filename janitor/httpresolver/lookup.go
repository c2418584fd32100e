package httpresolver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/retrysafe/retrysafe/internal/answerrule"
	"github.com/retrysafe/retrysafe/internal/headerkind"
)

// A Lookup is how the API of a provider is asked about an operation, and what its replies
// mean.
//
// URL and Body may have placeholders: {key}, {key_hash}, {downstream_key}, {provider_ref},
// {operation}, {scope}, and {request:/pointer} for a value of the operation's own request,
// where the record has it. Each value is escaped for the place it stands in. If a record
// lacks a value, or the value cannot stand there, nothing is sent and the outcome stays
// unknown.
type Lookup struct {
	// Method is GET or POST. Default GET. The question must change nothing, unless it makes
	// the other side refuse the operation (tombstoned).
	Method string
	// URL is https, or http on this machine. Placeholders stand behind its host.
	URL string
	// Header is sent with each question.
	Header map[string]string
	// Body is sent with POST: JSON, or a form if Header has that Content-Type.
	Body string
	// Rules say what a reply means. The first that matches counts; if none does, that is
	// an error of the resolver.
	Rules []Rule
	// ProviderRef is a JSON pointer to the provider's own name for the effect, in the
	// replies that have it.
	ProviderRef string
}

// A Rule says what replies of one kind mean.
type Rule struct {
	// Status has the statuses of the replies: "200", "4xx".
	Status []string
	// When has JSON pointers, and the texts of which one must be there.
	When map[string][]string
	// Present and Absent have JSON pointers at which there must be a value, or none. Of one
	// that must be absent, what it would be part of must be there: a list, an object.
	Present, Absent []string
	// Then is what it means: happened, declined, not_happened, tombstoned, pending or
	// unknown. Pending and unknown are both "ask again".
	Then string
	// Answer is what retries get, for happened and declined.
	Answer *Answer
}

// An Answer is what retries get. Its Header and Body may have placeholders as a [Lookup]
// has, and {/pointer} for a value of the reply.
type Answer struct {
	// Status is that of the answer, 200 to 599.
	Status int
	// Header is that of the answer. Default: Content-Type, application/json or that of the
	// reply if its body is passed on.
	Header map[string]string
	// Body is the answer's body: JSON unless Header says text/plain.
	Body string
	// BodyFrom takes the body from the reply: "response" is its whole body, a JSON pointer
	// the value there.
	BodyFrom string
}

// A FieldError says what is wrong with one field of a [Lookup].
type FieldError struct {
	// Field is its path: "url", "rules[2].answer.status".
	Field string
	// Err is what is wrong, and what to write instead.
	Err error
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *FieldError) Unwrap() error { return e.Err }

// A lookup is a [Lookup] that has been checked.
type lookup struct {
	method string
	url    address
	header http.Header
	body   answerrule.Template
	inBody answerrule.Escape
	rules  rules
}

// NewLookup returns a resolver that asks the API of a provider. Opts may be nil. Its errors
// are [FieldError]s, all of them at once.
func NewLookup(l Lookup, opts *Options) (*Resolver, error) {
	if opts == nil {
		opts = &Options{}
	}
	var errs []error
	refuse := func(field string, err error) {
		if err != nil {
			errs = append(errs, &FieldError{field, err})
		}
	}
	k := lookup{method: http.MethodGet, header: http.Header{}}
	if l.Method != "" {
		k.method = l.Method
	}
	if k.method != http.MethodGet && k.method != http.MethodPost {
		refuse("method", fmt.Errorf("%q is none of GET, POST", l.Method))
	}
	var host string
	var err error
	k.url, host, err = parseAddress(l.URL, opts.PlainHTTP)
	refuse("url", err)
	for _, name := range slices.Sorted(maps.Keys(l.Header)) {
		refuse("headers."+name, k.addHeader(name, l.Header[name], opts.Token != ""))
	}
	refuse("body", k.parseBody(l.Body))
	k.rules.parse(&l, refuse)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	r := newResolver(host, opts)
	r.prepare, r.understand = k.prepare, k.rules.understand
	return r, nil
}

func (k *lookup) addHeader(name, value string, token bool) error {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case headerkind.IsHop(canonical) || slices.Contains([]string{"Host", "Content-Length", "Expect"}, canonical):
		return errors.New("the connection has it, not the question; leave it out")
	case canonical == "Authorization" && token:
		return errors.New("there is a token too; keep one of them")
	case canonical == "Idempotency-Key":
		return errors.New("a question is no operation, and needs no key")
	}
	if err := headerkind.CheckReplayed("X-"+canonical, value); err != nil { // what is never replayed may be sent
		return err
	}
	k.header.Set(name, value)
	return nil
}

// parseBody reads the template of the question's body.
func (k *lookup) parseBody(text string) (err error) {
	if text == "" {
		return nil
	}
	if k.method != http.MethodPost {
		return errors.New("only a POST has a body; write method: POST")
	}
	if k.body, err = inQuestion.Parse(text); err != nil {
		return err
	}
	if k.header.Get("Content-Type") == "" {
		k.header.Set("Content-Type", "application/json")
	}
	switch kind := answerrule.MediaType(k.header.Get("Content-Type")); {
	case answerrule.IsJSON(kind):
		k.inBody = answerrule.InJSON
	case kind == "application/x-www-form-urlencoded":
		k.inBody = inQuery
	case len(k.body.Places) > 0:
		return fmt.Errorf("how a value stands in a body of type %q is not known; use application/json or application/x-www-form-urlencoded", kind)
	}
	return nil
}

// prepare returns the question about an operation.
func (k *lookup) prepare(ctx context.Context, n *names) (req *http.Request, why string, ok bool, err error) {
	cannot := func(lacks string) (*http.Request, string, bool, error) {
		return nil, "it cannot be asked: the record has no " + lacks + " that could stand there", false, nil
	}
	to, lacks := k.url.of(n)
	if lacks != "" {
		return cannot(lacks)
	}
	var body io.Reader
	if len(k.body.Texts) > 0 {
		text, lacks := k.body.Fill(n.value, answerrule.Always(k.inBody))
		if lacks != "" {
			return cannot(lacks)
		}
		body = bytes.NewReader([]byte(text))
	}
	req, err = http.NewRequestWithContext(ctx, k.method, to, body)
	if err != nil {
		return nil, "", false, withoutURL(err)
	}
	req.Header = k.header.Clone()
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json")
	}
	return req, "", true, nil
}

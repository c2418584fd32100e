package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor/httpresolver"
)

// Reconcile is how unknown outcomes are found out. Without resolvers an operator has to
// settle each of them.
type Reconcile struct {
	// Every is how often it is looked for outcomes that are due. Default 30 s.
	Every time.Duration
	// Concurrency is how many questions are open at once. Default 8.
	Concurrency int
	// Tries is how often it is asked about an outcome. Default 12.
	Tries int
	// Pause is the time between the first two questions about an outcome, which doubles
	// up to MaxPause. Default 1 minute and 8 hours.
	Pause, MaxPause time.Duration
	// Timeout bounds one question. Default 10 s.
	Timeout time.Duration
	// BreakAfter is how many questions in a row must fail before a resolver is given a
	// pause, of BreakPause at first and MaxBreakPause at most. Default 5, 10 s and 5
	// minutes.
	BreakAfter                int
	BreakPause, MaxBreakPause time.Duration
	Resolvers                 []Resolver
}

// A Resolver is where it is asked what became of operations.
type Resolver struct {
	// Name is its name in notes and logs. Default: the host that it asks.
	Name string
	// Routes are the patterns of the routes whose operations it knows. None: all that no
	// other resolver names.
	Routes []string
	// Endpoint is the URL of an endpoint that replies with a verdict. If it is empty,
	// Lookup is how the API of a provider is asked.
	Endpoint string
	Lookup   httpresolver.Lookup // without Header
	// Token is shown as a bearer. TokenFile is the file that it was read from, if it was.
	Token     Secret
	TokenFile string
	// Headers are sent with each question, and so are those of HeaderFiles, whose values
	// are in files of their own.
	Headers     []Header
	HeaderFiles []HeaderFile
	// PlainHTTP permits http to other machines.
	PlainHTTP bool
	// Deadline is how long an outcome must have been unknown before not_happened counts
	// as a proof. Zero: it never does.
	Deadline time.Duration
}

// A Header is a header that a question is sent with.
type Header struct {
	Name  string
	Value Secret
}

// A HeaderFile is a header whose value is in a file.
type HeaderFile struct {
	Name, File string
	Value      Secret
}

// Open returns the resolver. Body returns the body of an operation's request, where the
// record has it; it may be nil.
func (r *Resolver) Open(body func(retrysafe.Record) ([]byte, bool), tracer retrysafe.Tracer) (*httpresolver.Resolver, error) {
	opts := &httpresolver.Options{
		Name: r.Name, Token: string(r.Token), Namespace: Namespace, Call: UpstreamCall, PlainHTTP: r.PlainHTTP, Deadline: r.Deadline, Body: body, Tracer: tracer,
	}
	if r.Endpoint != "" {
		one, err := httpresolver.New(r.Endpoint, opts)
		if err != nil {
			return nil, &httpresolver.FieldError{Field: "endpoint", Err: err}
		}
		return one, nil
	}
	l := r.Lookup
	l.Header = map[string]string{}
	for _, h := range r.Headers {
		l.Header[h.Name] = string(h.Value)
	}
	for _, h := range r.HeaderFiles {
		l.Header[h.Name] = string(h.Value)
	}
	return httpresolver.NewLookup(l, opts)
}

// Resolves reports whether a resolver is asked about the operations of the route with this
// pattern; "" is the route of the defaults.
func (c *Config) Resolves(pattern string) bool {
	return slices.ContainsFunc(c.Reconcile.Resolvers, func(r Resolver) bool {
		return len(r.Routes) == 0 || pattern != "" && slices.Contains(r.Routes, pattern)
	})
}

func defaultReconcile() Reconcile {
	return Reconcile{
		Every: 30 * time.Second, Concurrency: 8, Tries: 12, Pause: time.Minute, MaxPause: 8 * time.Hour, Timeout: 10 * time.Second,
		BreakAfter: 5, BreakPause: 10 * time.Second, MaxBreakPause: 5 * time.Minute,
	}
}

func (r *Reconcile) fields() section {
	return section{
		{"every", span(&r.Every)},
		{"concurrency", count(&r.Concurrency)},
		{"tries", count(&r.Tries)},
		{"pause", span(&r.Pause)},
		{"max_pause", span(&r.MaxPause)},
		{"timeout", span(&r.Timeout)},
		{"break_after", count(&r.BreakAfter)},
		{"break_pause", span(&r.BreakPause)},
		{"max_break_pause", span(&r.MaxBreakPause)},
		{"resolvers", sections[Resolver]{&r.Resolvers, nil, (*Resolver).fields}},
	}
}

func (r *Resolver) fields() section {
	return section{
		{"name", text(&r.Name)},
		{"routes", texts(&r.Routes)},
		{"endpoint", text(&r.Endpoint)},
		{"method", words(&r.Lookup.Method, "GET", "POST")},
		{"url", text(&r.Lookup.URL)},
		{"token", secretText(&r.Token, redactAll)},
		{"token_file", text(&r.TokenFile)},
		{"headers", headers(&r.Headers)},
		{"header_files", headerFiles(&r.HeaderFiles)},
		{"body", text(&r.Lookup.Body)},
		{"plain_http", flag(&r.PlainHTTP)},
		{"deadline", span(&r.Deadline)},
		{"provider_ref", text(&r.Lookup.ProviderRef)},
		{"rules", sections[httpresolver.Rule]{&r.Lookup.Rules, nil, ruleFields}},
	}
}

func ruleFields(r *httpresolver.Rule) section {
	return section{
		{"status", someTexts{&r.Status}},
		{"when", conditions{&r.When}},
		{"present", texts(&r.Present)},
		{"absent", texts(&r.Absent)},
		{"then", words(&r.Then, "happened", "declined", "not_happened", "tombstoned", "pending", "unknown")},
		{"answer", answer{&r.Answer}},
	}
}

func answerFields(a *httpresolver.Answer) section {
	return section{
		{"status", count(&a.Status)},
		{"headers", textMap{&a.Header}},
		{"body", text(&a.Body)},
		{"body_from", text(&a.BodyFrom)},
	}
}

// reconcileSecrets are the secrets of resolvers that may be in files.
func (c *Config) reconcileSecrets() (all []secretFile) {
	for i := range c.Reconcile.Resolvers {
		path := element("reconcile.resolvers", i)
		all = append(all, secretFile{child(path, "token"), child(path, "token_file"), func(c *Config) (func(string), *string) {
			r := &c.Reconcile.Resolvers[i]
			return func(s string) { r.Token = Secret(s) }, &r.TokenFile
		}})
		for j, h := range c.Reconcile.Resolvers[i].HeaderFiles {
			all = append(all, secretFile{child(path, "headers."+h.Name), child(path, "header_files."+h.Name), func(c *Config) (func(string), *string) {
				h := &c.Reconcile.Resolvers[i].HeaderFiles[j]
				return func(s string) { h.Value = Secret(s) }, &h.File
			}})
		}
	}
	return all
}

// reconcileLiterals are the paths of secrets of resolvers that stand in the file itself.
func (c *Config) reconcileLiterals() (paths []string) {
	for i := range c.Reconcile.Resolvers {
		r, path := &c.Reconcile.Resolvers[i], element("reconcile.resolvers", i)
		if r.Token != "" && r.TokenFile == "" {
			paths = append(paths, child(path, "token"))
		}
		for _, h := range r.Headers {
			if h.Value != "" && credential(h.Name) {
				paths = append(paths, child(path, "headers."+h.Name))
			}
		}
	}
	return paths
}

// credential reports whether the name of a header says that its value is a secret.
func credential(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"auth", "key", "token", "secret", "cookie"}, func(part string) bool { return strings.Contains(name, part) })
}

// reconcileFiles are the files of resolvers that are read once.
func (c *Config) reconcileFiles() (all []string) {
	for i := range c.Reconcile.Resolvers {
		r := &c.Reconcile.Resolvers[i]
		all = append(all, r.TokenFile)
		for _, h := range r.HeaderFiles {
			all = append(all, h.File)
		}
	}
	return all
}

// reconcile refuses what cannot be asked, and rules that mean nothing.
func (k *checker) reconcile() {
	r := &k.Reconcile
	for _, f := range []struct {
		name string
		n    int64
	}{
		{"every", int64(r.Every)}, {"concurrency", int64(r.Concurrency)}, {"tries", int64(r.Tries)}, {"pause", int64(r.Pause)}, {"max_pause", int64(r.MaxPause)},
		{"timeout", int64(r.Timeout)}, {"break_after", int64(r.BreakAfter)}, {"break_pause", int64(r.BreakPause)}, {"max_break_pause", int64(r.MaxBreakPause)},
	} {
		if f.n <= 0 {
			k.refuse(child("reconcile", f.name), "it must be more than 0")
		}
	}
	if r.MaxPause < r.Pause {
		k.refuse("reconcile.max_pause", "it is %s, and pause %s is longer", printSpan(r.MaxPause), printSpan(r.Pause))
	}
	if r.MaxBreakPause < r.BreakPause {
		k.refuse("reconcile.max_break_pause", "it is %s, and break_pause %s is longer", printSpan(r.MaxBreakPause), printSpan(r.BreakPause))
	}
	for i := range r.Resolvers {
		k.resolver(i)
	}
}

func (k *checker) resolver(i int) {
	r, path := &k.Reconcile.Resolvers[i], element("reconcile.resolvers", i)
	k.resolverRoutes(i)
	if strings.ContainsFunc(string(r.Token), func(c rune) bool { return c <= ' ' || c > '~' }) {
		field := "token"
		if r.TokenFile != "" {
			field = "token_file"
		}
		k.refuse(child(path, field), "the token has characters in it that no token has")
	}
	if r.Deadline < 0 {
		k.refuse(child(path, "deadline"), "it is negative")
	}
	for j, h := range r.HeaderFiles {
		if slices.ContainsFunc(r.Headers, func(o Header) bool { return strings.EqualFold(o.Name, h.Name) }) {
			k.refuse(child(path, "header_files."+r.HeaderFiles[j].Name), "headers has it too; keep one of them")
		}
	}
	l := &r.Lookup
	switch {
	case r.Endpoint == "" && l.URL == "":
		k.refuse(child(path, "url"), "it is missing; it is the provider's URL with placeholders, such as https://api.example.com/charges/{downstream_key}, or endpoint is the URL of an endpoint of yours that replies with a verdict")
		return
	case r.Endpoint != "":
		for _, f := range []struct {
			name string
			is   bool
		}{
			{"url", l.URL != ""}, {"method", l.Method != ""}, {"headers", len(r.Headers) > 0}, {"header_files", len(r.HeaderFiles) > 0}, {"body", l.Body != ""},
			{"provider_ref", l.ProviderRef != ""}, {"rules", len(l.Rules) > 0},
		} {
			if f.is {
				k.refuse(child(path, f.name), "endpoint is there too, which replies with a verdict; keep one of them, url with rules or endpoint")
			}
		}
	}
	_, err := r.Open(nil, nil)
	for _, e := range unjoined(err) {
		field, wrong := "", e
		if f, ok := errors.AsType[*httpresolver.FieldError](e); ok {
			field, wrong = f.Field, f.Err
		}
		if errors.Is(wrong, httpresolver.ErrPlainHTTP) {
			wrong = fmt.Errorf("%w: an attacker on the network could answer instead, and make an operation run twice; use https, or plain_http: true to trust the network", wrong)
		}
		if errors.Is(wrong, httpresolver.ErrPassword) {
			wrong = fmt.Errorf("%w; use token, token_file or headers", wrong)
		}
		if name, ok := strings.CutPrefix(field, "headers."); ok && slices.ContainsFunc(r.HeaderFiles, func(h HeaderFile) bool { return h.Name == name }) {
			field = "header_files." + name
		}
		k.refuse(child(path, field), "%w", wrong)
	}
}

// unjoined returns the errors of [errors.Join].
func unjoined(err error) []error {
	if err == nil {
		return nil
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}

// resolverRoutes checks the routes of a resolver: they are there, no other resolver has
// them, and what the resolver needs to know of their requests is stored.
func (k *checker) resolverRoutes(i int) {
	r, path := &k.Reconcile.Resolvers[i], element("reconcile.resolvers", i)
	var patterns []string
	for _, route := range k.Routes {
		patterns = append(patterns, route.Match)
	}
	for j, name := range r.Routes {
		at := element(child(path, "routes"), j)
		n := slices.Index(patterns, name)
		switch {
		case n < 0:
			k.refuse(at, "there is no route with match: %s%s", quote(name), didYouMean(name, patterns))
		case k.Routes[n].Off || k.Routes[n].Observe:
			k.refuse(at, "the route is off, or only observed, so none of its outcomes is ever unknown")
		case slices.Contains(r.Routes[:j], name):
			k.refuse(at, "it is there twice")
		}
	}
	for j := range i {
		other := &k.Reconcile.Resolvers[j]
		if len(r.Routes) == 0 && len(other.Routes) == 0 {
			k.refuse(child(path, "routes"), "it is missing, and %s has none either: only one resolver can be for all other routes", element("reconcile.resolvers", j))
		}
		for n, name := range r.Routes {
			if slices.Contains(other.Routes, name) {
				k.refuse(element(child(path, "routes"), n), "%s is for this route already", element("reconcile.resolvers", j))
			}
		}
	}
	for name, s := range k.resolved(i) {
		if r.Deadline > 0 && r.Deadline < s.Timeout {
			k.refuse(child(path, "deadline"), "it is %s, and a request of %s may be on its way for %s (timeout): a retry could run while the first attempt still does; write at least %[3]s", printSpan(r.Deadline), name, printSpan(s.Timeout))
		}
		if !s.Async && r.refersToRequest() {
			k.refuse(child(path, "url"), "{request:…} is in it, and of %s, which is not async, no request is stored; use {key}, {downstream_key} or {provider_ref}", name)
		}
	}
}

// resolved returns the settings of the routes that a resolver is for, by what they are
// called in messages. One of several without a difference is enough.
func (k *checker) resolved(i int) map[string]*Settings {
	r, all := &k.Reconcile.Resolvers[i], map[string]*Settings{}
	for j := range k.Routes {
		s := &k.Routes[j].Settings
		if s.Off || s.Observe {
			continue
		}
		named := func(o Resolver) bool { return slices.Contains(o.Routes, k.Routes[j].Match) }
		if named(*r) || len(r.Routes) == 0 && !slices.ContainsFunc(k.Reconcile.Resolvers, named) {
			all[k.Routes[j].Match] = s
		}
	}
	if len(r.Routes) == 0 && !k.Defaults.Off && !k.Defaults.Observe {
		all["a path that no route matches"] = &k.Defaults
	}
	if len(all) > 1 { // the first is enough to say what is wrong
		worst := slices.MaxFunc(slices.Sorted(maps.Keys(all)), func(a, b string) int {
			return cmp.Or(cmp.Compare(all[a].Timeout, all[b].Timeout), strings.Compare(b, a))
		})
		for name, s := range all {
			if name != worst && (s.Async || !r.refersToRequest()) {
				delete(all, name)
			}
		}
	}
	return all
}

// refersToRequest reports whether a template needs the operation's request.
func (r *Resolver) refersToRequest() bool {
	has := func(text string) bool { return strings.Contains(text, "{request:") }
	return has(r.Lookup.URL) || has(r.Lookup.Body) || slices.ContainsFunc(r.Lookup.Rules, func(rule httpresolver.Rule) bool {
		return rule.Answer != nil && (has(rule.Answer.Body) || slices.ContainsFunc(slices.Collect(maps.Values(rule.Answer.Header)), has))
	})
}

// reconcile warns of what a resolver cannot settle.
func (w *warner) reconcile() {
	if len(w.Reconcile.Resolvers) > 0 && w.Janitor.Off {
		w.warn("reconcile", "janitor.off is true, so this gateway asks no resolver; retrysafe reconcile run --config does")
	}
	for i := range w.Reconcile.Resolvers {
		r := &w.Reconcile.Resolvers[i]
		says := func(then string) bool {
			return slices.ContainsFunc(r.Lookup.Rules, func(rule httpresolver.Rule) bool { return rule.Then == then })
		}
		if r.Deadline == 0 && says("not_happened") && !says("tombstoned") {
			w.warn(element("reconcile.resolvers", i), "there is no deadline, so not_happened is no proof: an operation with unprotected effects that the provider does not know stays unknown until an operator decides")
		}
	}
}

// answer is a section that may be missing.
type answer struct{ to **httpresolver.Answer }

func (a answer) read(r *reader, path string, n *yaml.Node) {
	one := &httpresolver.Answer{}
	answerFields(one).read(r, path, n)
	*a.to = one
}

func (a answer) standard() section { return answerFields(&httpresolver.Answer{}) }

func (a answer) print(p printer, path string) *yaml.Node {
	if *a.to == nil {
		return nil
	}
	return p.section(path, answerFields(*a.to), answerFields(&httpresolver.Answer{}))
}

// headerMap is a mapping from the names of headers to something that a kind of value
// reads and prints.
type headerMap[T any] struct {
	to    *[]T
	name  func(*T) *string
	value func(*T) value
}

func headers(to *[]Header) headerMap[Header] {
	return headerMap[Header]{to, func(h *Header) *string { return &h.Name }, func(h *Header) value { return secretText(&h.Value, redactAll) }}
}

func headerFiles(to *[]HeaderFile) headerMap[HeaderFile] {
	return headerMap[HeaderFile]{to, func(h *HeaderFile) *string { return &h.Name }, func(h *HeaderFile) value { return text(&h.File) }}
}

func (h headerMap[T]) read(r *reader, path string, n *yaml.Node) {
	var all []T
	for _, p := range r.pairs(path, n) {
		at := child(path, p.key.Value)
		r.mark(at, p.value)
		var one T
		*h.name(&one) = p.key.Value
		h.value(&one).read(r, at, p.value)
		all = append(all, one)
	}
	*h.to = all
}

func (h headerMap[T]) print(p printer, path string) *yaml.Node {
	return p.section(path, h.fields(*h.to), h.fields(make([]T, len(*h.to))))
}

// fields returns a section with a field for each header; all have the names that h has.
func (h headerMap[T]) fields(all []T) (s section) {
	for i := range all {
		s = append(s, field{*h.name(&(*h.to)[i]), h.value(&all[i])})
	}
	return s
}

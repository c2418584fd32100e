package conform

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Options are what is verified, and how. URL is required.
type Options struct {
	// URL is the API: its scheme and host, with a path if all its paths begin with one.
	URL string
	// Request is the operation that is repeated. It must succeed whenever it is sent under
	// a new key.
	Request Request
	// OtherBody is a body that is valid too, and asks for something else. Nil is for
	// Request's body with another number in it, if it is JSON or a form.
	OtherBody []byte
	// OtherPath is another state-changing endpoint that takes the same body.
	OtherPath string
	// OtherHeader are the credentials of a second caller. They replace the headers of the
	// same names in Request.
	OtherHeader http.Header
	// Profile is what the API follows. Nil is for [IETF].
	Profile *Profile
	// Effects is how effects are counted. Without it they are inferred from the answers,
	// and the report says which verdicts are weaker for it.
	Effects Effects

	// Slow, Fail, Limit and Crash are headers by which the API can be made to take at
	// least a second, to answer with a 5xx before any effect, to answer 429, and to die
	// after its effect and before its answer. They must not be part of what makes two
	// requests the same. Nil means that it cannot, and checks that need it are not tested.
	Slow, Fail, Limit, Crash http.Header
	// Webhooks is the address to listen on for the webhooks of the API.
	Webhooks string
	// Restart restarts the API. It returns when that is done.
	Restart func(context.Context) error
	// StoreDown and StoreUp make the place where the API keeps its keys unavailable, and
	// available again.
	StoreDown, StoreUp func(context.Context) error
	// Operations are further operations of the API, in the order in which they are done.
	// Each is checked for a retry that runs again.
	Operations []Operation

	// Only are the checks to run, by identity or by its part before the slash, with the
	// checks that they depend on. None is for all of them.
	Only []string
	// Racers is how many requests race. Zero is for 8.
	Racers int
	// Rate is how many requests are sent in a second at most. Zero is for 20. Racers are
	// sent together.
	Rate float64
	// Timeout is how long one answer may take. Zero is for 30 seconds.
	Timeout time.Duration
	// Patience is how long a request in flight may take until its answer is there, and
	// Interval the pause between two questions. Zeros are for 10 seconds and 250 ms.
	Patience, Interval time.Duration
	// Own says that the caller may test a host that is neither on this machine nor in a
	// private network.
	Own bool
	// TLS is for https. Nil is for the roots of the system.
	TLS *tls.Config
	// RunID is part of all keys of the run. Empty is for a random one.
	RunID string
	// OnResult, if it is not nil, is called with each result as it becomes known.
	OnResult func(*Result)
}

// A Request is a request without its key. In its path, headers and body {{unique}} stands
// for a text that is another one for each operation, and the same in its retries.
type Request struct {
	Method string // empty is for POST
	Path   string
	Header http.Header
	Body   []byte
}

// Effects is how effects are counted: by what a URL says, or by what names the effect in
// each answer.
type Effects struct {
	// URL is answered with the number of effects. {key} in it stands for the key of an
	// operation; without it the number is of all operations, and no other traffic may
	// change it while a check runs. The headers of [Options.Request] are sent to it, if it
	// is on the same host.
	URL string
	// Pointer is a JSON pointer. With URL it leads to a number, or to an array with an
	// element for each effect; without, to what names the effect in an answer, such as /id.
	Pointer string
	// Header is a response header, in place of Pointer.
	Header string
}

// An Operation is one step of a flow. {name} in its path, and members of its body whose
// names end in "id", are filled from the answers to the operations before it.
type Operation struct {
	Name    string
	Request Request
	// Missing says why the operation cannot be tried, if it cannot.
	Missing string
}

// settings are options that were checked, with every default in its place.
type settings struct {
	Options
	base    *url.URL
	probe   *url.URL // nil if effects are counted otherwise
	profile Profile
	unknown *regexp.Regexp
	body    *node // of the request, if it is a JSON document
}

var errURL = errors.New("a URL of http or https with a host, and nothing behind its path, is needed")

// settle checks the options and fills in defaults.
func (o *Options) settle() (*settings, error) {
	if o == nil {
		return nil, fmt.Errorf("URL: %w", errURL)
	}
	s := &settings{Options: *o}
	var err error
	if s.base, err = baseURL(o.URL); err != nil {
		return nil, fmt.Errorf("URL %q: %w", o.URL, err)
	}
	s.profile = *cmp.Or(o.Profile, IETF)
	if err := s.profile.check(); err != nil {
		return nil, fmt.Errorf("profile %s: %w", s.profile.Name, err)
	}
	if s.unknown, err = regexp.Compile(s.profile.Unknown); err != nil {
		return nil, fmt.Errorf("profile %s: unknown: %w", s.profile.Name, err)
	}
	if err := s.settleRequest(); err != nil {
		return nil, err
	}
	if o.Effects.URL != "" {
		if s.probe, err = url.Parse(strings.ReplaceAll(o.Effects.URL, "{key}", "key")); err != nil || s.probe.Host == "" || !isHTTP(s.probe) {
			return nil, fmt.Errorf("effects URL %q: it is not a URL of http or https", o.Effects.URL)
		}
	}
	if p := o.Effects.Pointer; p != "" && !strings.HasPrefix(p, "/") {
		return nil, fmt.Errorf("effects pointer %q: a JSON pointer begins with a slash, as /id", p)
	}
	if (o.StoreDown == nil) != (o.StoreUp == nil) {
		return nil, errors.New("StoreDown and StoreUp belong together: what is made unavailable has to become available again")
	}
	if s.Racers < 0 || s.Rate < 0 || s.Timeout < 0 || s.Patience < 0 || s.Interval < 0 {
		return nil, errors.New("numbers and durations are not negative: Racers, Rate, Timeout, Patience, Interval")
	}
	s.Racers = cmp.Or(s.Racers, 8)
	s.Rate = cmp.Or(s.Rate, 20)
	s.Timeout = cmp.Or(s.Timeout, 30*time.Second)
	s.Patience = cmp.Or(s.Patience, 10*time.Second)
	s.Interval = cmp.Or(s.Interval, 250*time.Millisecond)
	if s.RunID == "" {
		var b [4]byte
		_, _ = rand.Read(b[:]) // it never fails
		s.RunID = hex.EncodeToString(b[:])
	}
	if !regexp.MustCompile(`^[0-9A-Za-z]{1,16}$`).MatchString(s.RunID) {
		return nil, fmt.Errorf("run ID %q: it is 1 to 16 letters and digits", s.RunID)
	}
	return s, nil
}

// settleRequest checks the operation and fills in its defaults.
func (s *settings) settleRequest() error {
	r := &s.Request
	r.Method = strings.ToUpper(cmp.Or(r.Method, http.MethodPost))
	if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect}, r.Method) {
		return fmt.Errorf("request %s %s: a safe method needs no key; name an operation that changes something", r.Method, r.Path)
	}
	r.Header = r.Header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if _, ok := r.Header[http.CanonicalHeaderKey(s.profile.Header)]; ok {
		return fmt.Errorf("request header %s: keys are made here, one for each operation", s.profile.Header)
	}
	if r.Header.Get("Content-Type") == "" && len(r.Body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	if isJSON(r.Header.Get("Content-Type")) && len(r.Body) > 0 {
		var err error
		if s.body, err = parseNode(r.Body); err != nil {
			return fmt.Errorf("request body: it is not a JSON document: %w", err)
		}
		if len(s.OtherBody) > 0 && !json.Valid(s.OtherBody) {
			return errors.New("other body: it is not a JSON document")
		}
	}
	switch {
	case s.OtherBody != nil:
	case s.body != nil:
		s.OtherBody = s.body.changed()
	case isForm(r.Header.Get("Content-Type")):
		s.OtherBody = changedForm(r.Body)
	}
	if len(s.OtherBody) > 0 && bytes.Equal(s.OtherBody, r.Body) {
		return errors.New("other body: it is the same as the body of the request")
	}
	for _, path := range append([]string{r.Path, s.OtherPath}, operationPaths(s.Operations)...) {
		if strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c == '#' || c > '~' }) || path != "" && path[0] != '/' {
			return fmt.Errorf("path %q: it begins with a slash, and has no space, # or other character that must be escaped", path)
		}
	}
	for _, h := range []http.Header{r.Header, s.OtherHeader, s.Slow, s.Fail, s.Limit, s.Crash} {
		if err := checkHeader(h); err != nil {
			return err
		}
	}
	return nil
}

func operationPaths(all []Operation) (paths []string) {
	for _, o := range all {
		paths = append(paths, o.Request.Path)
	}
	return paths
}

// checkHeader returns an error for a header that would break a request.
func checkHeader(h http.Header) error {
	token := regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	framing := []string{"Content-Length", "Transfer-Encoding", "Connection", "Host", "Expect", "Upgrade", "Te", "Trailer"}
	for name, values := range h {
		if !token.MatchString(name) {
			return fmt.Errorf("header %q: that is not the name of a header", name)
		}
		if slices.Contains(framing, http.CanonicalHeaderKey(name)) {
			return fmt.Errorf("header %s: it belongs to the connection, and is set here", name)
		}
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n\x00") {
				return fmt.Errorf("header %s: its value has a line break in it", name)
			}
		}
	}
	return nil
}

func baseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || !isHTTP(u) || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errURL
	}
	if u.User != nil {
		return nil, errors.New("it contains a password; give an Authorization header instead")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

func isHTTP(u *url.URL) bool { return u.Scheme == "http" || u.Scheme == "https" }

func isJSON(contentType string) bool {
	media := mediaType(contentType)
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

func isForm(contentType string) bool {
	return mediaType(contentType) == "application/x-www-form-urlencoded"
}

func mediaType(contentType string) string {
	media, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	return strings.TrimSpace(media)
}

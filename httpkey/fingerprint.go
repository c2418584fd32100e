package httpkey

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/canonjson"
)

// How [retrysafe.Fingerprint.Alg] is made up. Its high four bits are the secret's ID,
// zero for none.
const (
	// fingerprintVersion is the algorithm below, in the low three bits. New records have
	// it.
	fingerprintVersion = 2
	// unscopedVersion is the same without the scope. Guards from before wrote it, and a
	// retry of such a record is compared by it.
	unscopedVersion = 1
	versionBits     = 0x07
	// chosenFields says that the guard has a choice of what counts. The last bytes of
	// the sum name the choice, so that a retry is compared by the one that its record
	// was stored under, whatever the guard's is by then.
	chosenFields = 0x08
)

// How a body entered the fingerprint. The tag is hashed before it, so that a
// body that cannot be canonicalised never equals one that was.
const (
	bodyRaw       = 'r'
	bodyJSON      = 'j'
	bodyForm      = 'f'
	bodyMultipart = 'm'
)

// fingerprinter computes fingerprints. Its buffers are reused between requests.
type fingerprinter struct {
	buf []byte
	enc canonjson.Encoder
}

// Fields are a choice of what counts in a fingerprint, as [Options] has it. The order
// within a list does not matter.
type Fields struct {
	Include, Exclude []string // of JSON and form bodies
	Headers          []string // of the request
}

// fields is a choice of what counts in a fingerprint, compiled. The zero fields are no
// choice: everything in a body counts, and no header.
type fields struct {
	id      choiceID
	headers []string
	filter  *canonjson.Filter
	include map[string]bool // top-level names, for forms
	exclude map[string]bool
	secrets []Secret
	former  []fields // choices that records may have been stored under
}

// choiceID names a choice: the beginning of a hash of it. Zero is no choice.
type choiceID [4]byte

// newFields compiles a choice.
func newFields(c Fields) (fields, error) {
	fs := fields{include: topLevel(c.Include), exclude: topLevel(c.Exclude)}
	for _, name := range c.Headers {
		fs.headers = append(fs.headers, http.CanonicalHeaderKey(name))
	}
	fs.headers = sorted(fs.headers)
	if len(c.Include)+len(c.Exclude) > 0 {
		var err error
		if fs.filter, err = canonjson.NewFilter(c.Include, c.Exclude); err != nil {
			return fields{}, err
		}
	}
	if fs.filter != nil || len(fs.headers) > 0 {
		b := []byte("retrysafe fields 1\x00")
		for _, list := range [...][]string{sorted(c.Include), sorted(c.Exclude), fs.headers} {
			b = appendList(b, list)
		}
		sum := sha256.Sum256(b)
		copy(fs.id[:], sum[:])
		fs.id[0] |= 1 // never zero
	}
	return fs, nil
}

// sorted returns a list in order, each element once.
func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// mark returns a fingerprint that names this choice.
func (fs *fields) mark(f retrysafe.Fingerprint) retrysafe.Fingerprint {
	if fs.id != (choiceID{}) {
		f.Alg |= chosenFields
		copy(f.Sum[len(f.Sum)-len(fs.id):], fs.id[:])
	}
	return f
}

// of returns the choice that a stored fingerprint was computed by, or nil if this guard
// does not know it.
func (fs *fields) of(stored retrysafe.Fingerprint) *fields {
	if stored.Alg&chosenFields == 0 {
		return new(fields)
	}
	id := choiceOf(stored)
	if fs.id == id {
		return fs
	}
	for i := range fs.former {
		if fs.former[i].id == id {
			return &fs.former[i]
		}
	}
	return nil
}

// sameWay reports whether two fingerprints were computed by the same algorithm, under
// the same secret and the same choice of fields.
func sameWay(a, b retrysafe.Fingerprint) bool {
	return a.Alg == b.Alg && (a.Alg&chosenFields == 0 || choiceOf(a) == choiceOf(b))
}

// choiceOf returns the name of the choice that a fingerprint with chosenFields has.
func choiceOf(f retrysafe.Fingerprint) choiceID {
	return choiceID(f.Sum[len(f.Sum)-len(choiceID{}):])
}

// intent is what a fingerprint is computed of.
type intent struct {
	r     *http.Request
	body  []byte
	scope string
}

// sum returns the fingerprint of a request. Every part is preceded by its length, so
// that two different requests never have the same encoding.
func (f *fingerprinter) sum(in *intent, fs *fields) retrysafe.Fingerprint {
	var secret *Secret
	if len(fs.secrets) > 0 {
		secret = &fs.secrets[0]
	}
	return f.seal(fingerprintVersion, in, fs, secret)
}

// sumAs is sum in the way that a stored fingerprint was computed, if this guard knows
// its algorithm, has its secret and knows its choice of fields.
func (f *fingerprinter) sumAs(stored retrysafe.Fingerprint, in *intent, fs *fields) (retrysafe.Fingerprint, bool) {
	version, chosen := stored.Alg&versionBits, fs.of(stored)
	if version != fingerprintVersion && version != unscopedVersion || chosen == nil {
		return retrysafe.Fingerprint{}, false
	}
	id := stored.Alg >> 4
	if id == 0 {
		return f.seal(version, in, chosen, nil), true
	}
	for i := range fs.secrets {
		if fs.secrets[i].ID == id {
			return f.seal(version, in, chosen, &fs.secrets[i]), true
		}
	}
	return retrysafe.Fingerprint{}, false
}

// seal hashes the frame of a request. With a secret it computes an HMAC under a key that
// is derived for the scope, so that neither a reader of the store nor another tenant can
// test a guess.
func (f *fingerprinter) seal(version uint8, in *intent, fs *fields, secret *Secret) retrysafe.Fingerprint {
	f.frame(version, in, fs)
	if secret == nil {
		return fs.mark(retrysafe.Fingerprint{Alg: version, Sum: sha256.Sum256(f.buf)})
	}
	derive := hmac.New(sha256.New, secret.Key)
	_, _ = io.WriteString(derive, "retrysafe fingerprint 1\x00"+in.scope)
	mac := hmac.New(sha256.New, derive.Sum(nil))
	_, _ = mac.Write(f.buf)
	out := retrysafe.Fingerprint{Alg: version | secret.ID<<4}
	mac.Sum(out.Sum[:0])
	return fs.mark(out)
}

// frame encodes the scope and the parts of a request that count into f.buf. With the
// scope, equal requests of two tenants have different sums.
func (f *fingerprinter) frame(version uint8, in *intent, fs *fields) {
	r := in.r
	contentType := first(r.Header["Content-Type"])
	essence := mediaType(contentType)
	b := f.buf[:0]
	if version != unscopedVersion {
		b = appendText(b, in.scope)
	}
	b = appendText(b, r.Method)
	path := r.URL.EscapedPath()
	b = appendText(b, path)
	b = appendText(b, mount(r.RequestURI, path))
	b = appendText(b, patternHost(r.Pattern))
	b = appendQuery(b, r.URL.RawQuery)
	b = binary.AppendUvarint(b, uint64(len(fs.headers)))
	for _, name := range fs.headers {
		b = appendList(appendText(b, name), r.Header[name])
	}
	b = appendLower(b, essence)
	f.buf = f.appendBody(b, essence, contentType, in.body, fs)
}

// mount returns the prefix of the request's path that http.StripPrefix or the like has
// cut off: the same path under another prefix is another endpoint.
func mount(requestURI, path string) string {
	if !strings.HasPrefix(requestURI, "/") {
		return ""
	}
	whole, _, _ := strings.Cut(requestURI, "?")
	return strings.TrimSuffix(whole, path)
}

// patternHost returns the host of a pattern that has one: the same path on another such
// host is another endpoint. Otherwise the host does not count, so that a retry may use
// another name of the same service.
func patternHost(pattern string) string {
	if _, rest, ok := strings.Cut(pattern, " "); ok {
		pattern = strings.TrimLeft(rest, " \t")
	}
	host, _, _ := strings.Cut(pattern, "/")
	return host
}

// appendBody appends the body after the tag of its kind.
func (f *fingerprinter) appendBody(b []byte, essence, contentType string, body []byte, fs *fields) []byte {
	start := len(b)
	var err error
	switch {
	case isJSON(essence):
		b, err = f.enc.Append(append(b, bodyJSON), body, fs.filter)
	case strings.EqualFold(essence, "application/x-www-form-urlencoded"):
		b, err = appendForm(append(b, bodyForm), body, fs)
	case strings.EqualFold(essence, "multipart/form-data"):
		b, err = appendMultipart(append(b, bodyMultipart), contentType, body)
	default:
		err = errRaw
	}
	if err == nil {
		return b
	}
	sum := sha256.Sum256(body)
	return append(append(b[:start], bodyRaw), sum[:]...)
}

// errRaw: the body has no canonical form; its bytes are hashed as they are.
var errRaw = errors.New("no canonical form")

// appendQuery appends a query, sorted by name. The values of one name keep their order.
// A query that cannot be parsed is appended as it is.
func appendQuery(b []byte, raw string) []byte {
	if raw == "" {
		return append(b, 0)
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return appendText(append(b, 2), raw)
	}
	return appendValues(append(b, 1), values)
}

func appendValues(b []byte, values map[string][]string) []byte {
	b = binary.AppendUvarint(b, uint64(len(values)))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		b = appendList(appendText(b, name), values[name])
	}
	return b
}

// appendForm appends a form, sorted by name.
func appendForm(b, body []byte, fs *fields) ([]byte, error) {
	values, err := url.ParseQuery(string(body))
	if err != nil {
		return b, err
	}
	for name := range values {
		if fs.exclude[name] || fs.include != nil && !fs.include[name] {
			delete(values, name)
		}
	}
	return appendValues(b, values), nil
}

// appendMultipart appends a multipart form part by part. The boundary does not count,
// because clients draw a new one for each attempt.
func appendMultipart(b []byte, contentType string, body []byte) ([]byte, error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" || !wholeMultipart(body, "--"+params["boundary"]) {
		return b, errRaw
	}
	parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return append(b, 0), nil
		}
		if err != nil {
			return b, err
		}
		h := sha256.New()
		if _, err := io.Copy(h, part); err != nil {
			return b, err
		}
		b = appendValues(append(b, 1), part.Header)
		b = h.Sum(b)
	}
}

// wholeMultipart reports whether body has nothing before its first boundary and ends
// with the last one. The reader skips what is outside and takes a truncated body for a
// complete one, so different bodies would have the same fingerprint.
func wholeMultipart(body []byte, boundary string) bool {
	inside, ok := bytes.CutSuffix(bytes.TrimRight(body, "\r\n"), []byte(boundary+"--"))
	return ok && (len(inside) == 0 || inside[len(inside)-1] == '\n' && bytes.HasPrefix(inside, []byte(boundary)))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendList(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}

func appendLower(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	for i := range len(s) {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

// mediaType returns a Content-Type without its parameters.
func mediaType(contentType string) string {
	if i := strings.IndexByte(contentType, ';'); i >= 0 {
		contentType = contentType[:i]
	}
	return strings.Trim(contentType, " \t")
}

func isJSON(essence string) bool {
	const suffix = "+json"
	return essence == "application/json" || strings.EqualFold(essence, "application/json") ||
		len(essence) > len(suffix) && strings.EqualFold(essence[len(essence)-len(suffix):], suffix)
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

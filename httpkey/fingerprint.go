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

// fingerprintVersion is the algorithm below. It is stored in the low four bits of
// [retrysafe.Fingerprint.Alg]; the high four are the secret's ID, zero for none.
const fingerprintVersion = 1

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

// fields is the choice of what counts in a fingerprint.
type fields struct {
	headers []string
	filter  *canonjson.Filter
	include map[string]bool // top-level names, for forms
	exclude map[string]bool
	secrets []Secret
}

// sum returns the fingerprint of a request with the given body. Every part is preceded
// by its length, so that two different requests never have the same encoding.
func (f *fingerprinter) sum(r *http.Request, body []byte, scope string, fs *fields) retrysafe.Fingerprint {
	f.frame(r, body, fs)
	var secret *Secret
	if len(fs.secrets) > 0 {
		secret = &fs.secrets[0]
	}
	return f.seal(scope, secret)
}

// sumAs is sum under a stored algorithm, if this guard has its secret.
func (f *fingerprinter) sumAs(alg uint8, r *http.Request, body []byte, scope string, fs *fields) (retrysafe.Fingerprint, bool) {
	if alg&0x0f != fingerprintVersion {
		return retrysafe.Fingerprint{}, false
	}
	f.frame(r, body, fs)
	if alg>>4 == 0 {
		return f.seal(scope, nil), true
	}
	for i := range fs.secrets {
		if fs.secrets[i].ID == alg>>4 {
			return f.seal(scope, &fs.secrets[i]), true
		}
	}
	return retrysafe.Fingerprint{}, false
}

// seal hashes f.buf. With a secret it computes an HMAC under a key that is derived for
// the scope, so that neither a reader of the store nor another tenant can test a guess.
func (f *fingerprinter) seal(scope string, secret *Secret) retrysafe.Fingerprint {
	if secret == nil {
		return retrysafe.Fingerprint{Alg: fingerprintVersion, Sum: sha256.Sum256(f.buf)}
	}
	derive := hmac.New(sha256.New, secret.Key)
	_, _ = io.WriteString(derive, "retrysafe fingerprint 1\x00"+scope)
	mac := hmac.New(sha256.New, derive.Sum(nil))
	_, _ = mac.Write(f.buf)
	out := retrysafe.Fingerprint{Alg: fingerprintVersion | secret.ID<<4}
	mac.Sum(out.Sum[:0])
	return out
}

// frame encodes the parts of a request that count into f.buf.
func (f *fingerprinter) frame(r *http.Request, body []byte, fs *fields) {
	contentType := first(r.Header["Content-Type"])
	essence := mediaType(contentType)
	b := appendText(f.buf[:0], r.Method)
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
	f.buf = f.appendBody(b, essence, contentType, body, fs)
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

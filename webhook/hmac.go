package webhook

import (
	"crypto"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	_ "crypto/sha512" // so that crypto.SHA512 is there

	"github.com/retrysafe/retrysafe/internal/jsonrule"
)

// GitHub returns the scheme of GitHub's webhooks: the header X-Hub-Signature-256 has an
// HMAC of the body, and X-GitHub-Delivery the event's id. There is no time stamp.
func GitHub(secrets ...Secret) HMAC {
	return HMAC{Secrets: secrets, Header: "X-Hub-Signature-256", Prefix: "sha256=", IDHeader: "X-GitHub-Delivery"}
}

// An HMAC verifies events with an HMAC of the body in a header, as many providers sign
// them. Secrets and Header are required.
//
// The signature does not cover the headers. So an id that comes from a header names the
// event in logs and notes, and the event is remembered by a hash of its body: the body
// under another id is a redelivery. Without a time stamp a recorded event is refused
// for as long as it is remembered, see [Options.Retention], and no longer.
type HMAC struct {
	// Secrets are the accepted secrets, used as they are written: the current one, and
	// during a rotation the next or the previous one too.
	Secrets []Secret
	// Hash is SHA256 or SHA512. Default SHA256.
	Hash crypto.Hash
	// Header has the signature, behind Prefix. It may hold several, separated by commas
	// or spaces; those without the prefix are ignored.
	Header, Prefix string
	// Base64 says that a signature is in base64. Default: in hexadecimal digits.
	Base64 bool
	// Signed is the text that is signed. It ends with {body}, and has {timestamp} before
	// that where TimestampHeader is set: "{timestamp}.{body}", "v0:{timestamp}:{body}".
	// Default "{body}".
	Signed string
	// TimestampHeader has the time of signing, in seconds since 1970.
	TimestampHeader string
	// Tolerance is how far from now an event may have been signed. Default 5 minutes.
	Tolerance time.Duration
	// IDHeader has the event's id, or IDPointer is the JSON pointer to the id in the
	// body. Without both the id is a hash of the body.
	IDHeader, IDPointer string
	// Now replaces the clock, for tests.
	Now func() time.Time
}

var _ Scheme = HMAC{}

// Check returns an error if the scheme cannot verify an event.
func (s HMAC) Check() error {
	_, err := s.prepare()
	return err
}

// prepared is an HMAC whose fields were checked.
type prepared struct {
	keys        [][]byte
	hash        crypto.Hash
	head, joint string // the signed text before the time stamp, and between it and the body
	id          jsonrule.Pointer
}

func (s HMAC) prepare() (p prepared, err error) {
	if p.keys, err = keys(s.Secrets, Secret.text, s.Tolerance); err != nil {
		return p, err
	}
	if p.hash = s.Hash; p.hash == 0 {
		p.hash = crypto.SHA256
	}
	before, whole := strings.CutSuffix(s.Signed, bodyPlace)
	if s.Signed == "" {
		before, whole = "", true
	}
	var stamped bool
	p.head, p.joint, stamped = strings.Cut(before, stampPlace)
	switch {
	case p.hash != crypto.SHA256 && p.hash != crypto.SHA512:
		return p, errors.New("webhook: Hash is neither SHA256 nor SHA512")
	case s.Header == "":
		return p, errors.New("webhook: Header is empty; it names the header that has the signature")
	case !whole || strings.ContainsAny(p.head+p.joint, "{}"):
		return p, fmt.Errorf("webhook: Signed is %q; it is %s, or text and %s before that", s.Signed, bodyPlace, stampPlace)
	case stamped != (s.TimestampHeader != ""):
		return p, fmt.Errorf("webhook: TimestampHeader and %s in Signed need each other: a time stamp that is not signed proves nothing", stampPlace)
	case stamped && (p.joint == "" || '0' <= p.joint[0] && p.joint[0] <= '9'):
		return p, errors.New("webhook: nothing that is no digit separates time stamp and body in Signed, so one signed text could be read as two events")
	case !stamped && s.Tolerance != 0:
		return p, errors.New("webhook: Tolerance is of no use without a time stamp")
	case s.IDHeader != "" && s.IDPointer != "":
		return p, errors.New("webhook: IDHeader and IDPointer exclude each other")
	}
	if p.id, err = jsonrule.ParsePointer(s.IDPointer); err != nil {
		return p, fmt.Errorf("webhook: IDPointer: %w", err)
	}
	return p, nil
}

const bodyPlace, stampPlace = "{body}", "{timestamp}"

// Verify implements [Scheme].
func (s HMAC) Verify(h http.Header, body []byte) (Event, error) {
	p, err := s.prepare()
	if err != nil {
		return Event{}, err
	}
	list, err := only(h, s.Header)
	if err != nil {
		return Event{}, err
	}
	var at time.Time
	text := p.head
	if s.TimestampHeader != "" {
		timestamp, err := only(h, s.TimestampHeader)
		if err != nil {
			return Event{}, err
		}
		if at, err = stamp(timestamp); err != nil {
			return Event{}, err
		}
		text += timestamp + p.joint
	}
	if !p.signed(s.signatures(list), text, body) {
		return Event{}, ErrForged
	}
	if s.TimestampHeader != "" {
		if err := inTime(at, s.Tolerance, s.Now); err != nil {
			return Event{}, err
		}
	}
	sum := sha256.Sum256(body)
	ev := Event{At: at, key: "sha256 " + hex.EncodeToString(sum[:])}
	ev.ID = ev.key
	switch {
	case s.IDHeader != "":
		ev.ID, err = only(h, s.IDHeader)
	case s.IDPointer != "":
		ev.ID, err = textAt(body, p.id)
		ev.key = ""
	}
	return ev, err
}

// signatures returns the signatures in a header.
func (s HMAC) signatures(list string) (all [][]byte) {
	decode := hex.DecodeString
	if s.Base64 {
		decode = base64.StdEncoding.DecodeString
	}
	for one := range strings.FieldsFuncSeq(list, func(c rune) bool { return c == ',' || c == ' ' }) {
		if text, ok := strings.CutPrefix(one, s.Prefix); ok {
			if b, err := decode(text); err == nil {
				all = append(all, b)
			}
		}
	}
	return all
}

// signed is the function signed, by the hash of the scheme.
func (p *prepared) signed(signatures [][]byte, head string, body []byte) bool {
	found := false
	for _, key := range p.keys {
		m := hmac.New(p.hash.New, key)
		m.Write([]byte(head))
		m.Write(body)
		want := m.Sum(nil)
		for _, got := range signatures {
			found = hmac.Equal(got, want) || found
		}
	}
	return found
}

// textAt returns the text at a place in a body.
func textAt(body []byte, at jsonrule.Pointer) (string, error) {
	d, err := jsonrule.Parse(body)
	if err != nil {
		return "", fmt.Errorf("%w: its body is not JSON", ErrMalformed)
	}
	text, ok := d.Text(at)
	if !ok || text == "" {
		return "", fmt.Errorf("%w: its body has no id at %s", ErrMalformed, at)
	}
	return text, nil
}

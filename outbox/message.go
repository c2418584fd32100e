package outbox

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/fields"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// A Message is an effect that is to happen if, and only if, the transaction that
// enqueued it commits. It is delivered as it was enqueued, byte for byte, on every try.
type Message struct {
	// Topic says what the message is, and where it goes.
	Topic string
	// Group orders messages: those of one group are delivered one after the other, in
	// the order in which they were enqueued. Messages without a group have no order.
	Group string
	// Key is the idempotency key that the receiver gets, the same on every try.
	// [retrysafe.Execution.DownstreamKey] makes one; without it a random one is
	// drawn when the message is enqueued.
	Key     string
	Header  map[string]string
	Payload []byte
	// Wait delays the message. A delayed message has no place in an order, so one with
	// a Group cannot have it.
	Wait time.Duration
	// Settles is the record of a key whose answer this message's delivery gives, as
	// [retrysafe.Execution.HandOver] left it. The key is settled in the same step that
	// acknowledges the message.
	Settles *retrysafe.Record
}

// An Enqueuer is a transaction of the caller that messages can join.
type Enqueuer interface {
	// Enqueue adds messages to the transaction. They exist when it commits. If Enqueue
	// fails the transaction is rolled back, so that a caller that ignores the error
	// cannot commit without the messages.
	Enqueue(ctx context.Context, messages ...Message) error
}

// The limits of a message: the bytes of Topic, Group and Key each and of the payload, and
// the number of headers.
const (
	maxName    = 255
	maxPayload = 1 << 20
	maxHeaders = 64
)

// ErrMessage says that the message itself cannot be enqueued.
var ErrMessage = errors.New("outbox: message refused")

// Check returns what is wrong with a message, as an [ErrMessage]. Stores call it before
// they write.
func (m *Message) Check() error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrMessage, fmt.Sprintf(format, args...))
	}
	switch {
	case m.Topic == "":
		return refuse("it has no Topic, which says what it is and where it goes")
	case len(m.Topic) > maxName || len(m.Group) > maxName || len(m.Key) > maxName:
		return refuse("Topic, Group and Key have at most %d bytes", maxName)
	case len(m.Payload) > maxPayload:
		return refuse("its payload has %d bytes, %d are allowed; store it elsewhere and send where it is", len(m.Payload), maxPayload)
	case len(m.Header) > maxHeaders:
		return refuse("it has %d headers, %d are allowed", len(m.Header), maxHeaders)
	case m.Wait < 0:
		return refuse("Wait is negative")
	case m.Wait > 0 && m.Group != "":
		return refuse("it has both a Group and a Wait; the delay would hold up the rest of the group")
	case m.Settles != nil && (m.Settles.State != retrysafe.StateInProgress || m.Settles.Owner.IsZero()):
		return refuse("the record that it settles was not handed over")
	}
	return nil
}

// Shards is the number of parts that messages are divided into by their groups. Each
// shard has one worker at a time.
const Shards = 64

// Shard returns the number of the message's shard. The messages of one group have the
// same; those without a group are spread by their keys.
func (m *Message) Shard() int {
	h := fnv.New32a()
	if m.Group != "" {
		_, _ = h.Write([]byte(m.Group))
	} else {
		_, _ = h.Write([]byte(m.Key))
	}
	return int(h.Sum32() % Shards)
}

// Prepared returns m as a store keeps it: with a key, its own or a random one, and with
// the headers of the trace that ctx belongs to, unless it has some. Stores call it when a
// message is enqueued.
func (m Message) Prepared(ctx context.Context) Message {
	m = m.traced(ctx)
	if m.Key == "" {
		var nonce [16]byte
		_, _ = rand.Read(nonce[:]) // it never fails
		m.Key = hex.EncodeToString(nonce[:])
	}
	return m
}

// encodingVersion is the version of a message's encoding.
const encodingVersion = 1

var checksums = crc32.MakeTable(crc32.Castagnoli)

// AppendMessage appends the encoding of m to b, for stores that keep it as bytes. The
// encoding leaves out Wait.
func AppendMessage(b []byte, m *Message) []byte {
	start := len(b)
	b = append(b, encodingVersion)
	for _, s := range [...]string{m.Topic, m.Group, m.Key} {
		b = fields.Append(b, s)
	}
	b = binary.AppendUvarint(b, uint64(len(m.Header)))
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		b = fields.Append(fields.Append(b, name), m.Header[name])
	}
	b = fields.Append(b, m.Payload)
	if m.Settles != nil {
		b = storekit.AppendRecord(b, m.Settles)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], checksums))
}

// ErrUnreadable says that a message is stored but cannot be read. It becomes a dead
// letter; it is never dropped, and holds up only its own group.
var ErrUnreadable = errors.New("outbox: message cannot be read")

// DecodeMessage is the inverse of [AppendMessage]. It shares memory with b.
func DecodeMessage(b []byte) (m Message, err error) {
	if len(b) < 5 {
		return m, fmt.Errorf("%w: %d bytes are too few", ErrUnreadable, len(b))
	}
	if b[0] != encodingVersion {
		return m, fmt.Errorf("%w: it is encoded as version %d, this program reads %d; upgrade the program", ErrUnreadable, b[0], encodingVersion)
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, checksums) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return m, fmt.Errorf("%w: its checksum does not match; it is damaged", ErrUnreadable)
	}
	d := fields.Reader{Rest: body[1:]}
	var ends [3]int // the names are parts of one string
	var sizes [3]int
	for i := range ends {
		sizes[i] = len(d.Bytes())
		ends[i] = len(body) - len(d.Rest)
	}
	names := string(body[:ends[2]])
	for i, s := range [...]*string{&m.Topic, &m.Group, &m.Key} {
		*s = names[ends[i]-sizes[i] : ends[i]]
	}
	if n := d.Count(); n > 0 {
		m.Header = make(map[string]string, n)
		for range n {
			name := string(d.Bytes())
			m.Header[name] = string(d.Bytes())
		}
	}
	m.Payload = d.Bytes()
	if !d.Bad && len(d.Rest) > 0 {
		r, err := storekit.DecodeRecord(d.Rest)
		if err != nil {
			return m, fmt.Errorf("%w: the record that it settles: %w", ErrUnreadable, err)
		}
		m.Settles, d.Rest = &r, nil
	}
	if d.Bad {
		return m, fmt.Errorf("%w: its fields do not add up", ErrUnreadable)
	}
	return m, nil
}

package outbox_test

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/hammer"
	"github.com/retrysafe/retrysafe/outbox"
)

func TestMessagesAreChecked(t *testing.T) {
	t.Parallel()
	headers := map[string]string{}
	for i := range 65 {
		headers[strings.Repeat("h", i)] = ""
	}
	long := strings.Repeat("x", 256)
	for want, m := range map[string]outbox.Message{
		"":                    {Topic: long[:255], Group: long[:255], Key: long[:255], Payload: make([]byte, 1<<20)},
		"no Topic":            {},
		"at most 255":         {Topic: long},
		"at most 255 bytes":   {Topic: "t", Group: long},
		"have at most 255":    {Topic: "t", Key: long},
		"are allowed; store":  {Topic: "t", Payload: make([]byte, 1<<20+1)},
		"65 headers":          {Topic: "t", Header: headers},
		"Wait is negative":    {Topic: "t", Wait: -1},
		"a Group and a Wait":  {Topic: "t", Group: "g", Wait: 1},
		"was not handed over": {Topic: "t", Settles: &retrysafe.Record{State: retrysafe.StateCompleted, Owner: retrysafe.Owner{1}}},
		"not handed over":     {Topic: "t", Settles: &retrysafe.Record{State: retrysafe.StateInProgress}},
	} {
		err := m.Check()
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, outbox.ErrMessage) || !strings.Contains(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// What is of one group is of one shard; what is of none is spread.
func TestShards(t *testing.T) {
	t.Parallel()
	used := map[int]bool{}
	for range 2000 {
		m := outbox.Message{Topic: "t"}.Prepared(t.Context())
		if m.Key == "" || m.Shard() < 0 || m.Shard() >= outbox.Shards {
			t.Fatalf("%q is of shard %d", m.Key, m.Shard())
		}
		used[m.Shard()] = true
		m.Group = "g"
		if m.Shard() != (&outbox.Message{Group: "g"}).Shard() {
			t.Fatal("a group has two shards")
		}
	}
	if len(used) != outbox.Shards {
		t.Errorf("2,000 keys are in %d of %d shards", len(used), outbox.Shards)
	}
	if m := (outbox.Message{Key: "mine"}).Prepared(t.Context()); m.Key != "mine" {
		t.Errorf("a message with a key got %q", m.Key)
	}
}

func same(a, b *outbox.Message) bool {
	return a.Topic == b.Topic && a.Group == b.Group && a.Key == b.Key && maps.Equal(a.Header, b.Header) &&
		bytes.Equal(a.Payload, b.Payload) && (a.Settles == nil) == (b.Settles == nil)
}

// TestW67_EveryDamagedByteIsNoticed: what is read is what was enqueued, or nothing.
func TestW67_EveryDamagedByteIsNoticed(t *testing.T) {
	t.Parallel()
	rec := retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "s", Key: "k"}, Version: retrysafe.RecordVersion, State: retrysafe.StateInProgress,
		Owner: retrysafe.Owner{1}, Attempt: 1, Retain: time.Hour, Revision: 7,
	}
	m := outbox.Message{Topic: "t", Group: "g", Key: "k", Header: map[string]string{"A": "1", "B": "2"}, Payload: []byte("payload"), Settles: &rec}
	b := outbox.AppendMessage(nil, &m)
	got, err := outbox.DecodeMessage(b)
	if err != nil || !same(&got, &m) || got.Settles.Ref != rec.Ref || got.Settles.Revision != 7 || got.Settles.Owner != rec.Owner {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range b {
		if _, err := outbox.DecodeMessage(b[:i]); !errors.Is(err, outbox.ErrUnreadable) {
			t.Errorf("%d of %d bytes: %v", i, len(b), err)
		}
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[i] ^= 1 << bit
			if _, err := outbox.DecodeMessage(bad); !errors.Is(err, outbox.ErrUnreadable) {
				t.Errorf("bit %d of byte %d: %v", bit, i, err)
			}
		}
	}
	newer := bytes.Clone(b)
	newer[0] = 2
	if _, err := outbox.DecodeMessage(newer); err == nil || !strings.Contains(err.Error(), "upgrade the program") {
		t.Errorf("a newer version: %v", err)
	}
}

func FuzzMessage(f *testing.F) {
	hammer.Add(f, "topic", "group", "key", "name", "value", []byte("payload"))
	hammer.Add(f, "", "", "", "", "", []byte(nil))
	hammer.Fuzz(f, func(t *testing.T, topic, group, key, name, value string, payload []byte) {
		m := outbox.Message{Topic: topic, Group: group, Key: key, Header: map[string]string{name: value, name + "2": value}, Payload: payload}
		b := outbox.AppendMessage([]byte("before"), &m)
		got, err := outbox.DecodeMessage(b[len("before"):])
		if err != nil || !same(&got, &m) {
			t.Errorf("%+v comes back as %+v, %v", m, got, err)
		}
		if again := outbox.AppendMessage([]byte("before"), &got); !bytes.Equal(again, b) {
			t.Errorf("one message has two encodings")
		}
	})
}

// FuzzDecodeMessage: rubbish is refused, and what is not is encoded just so.
func FuzzDecodeMessage(f *testing.F) {
	hammer.Add(f, outbox.AppendMessage(nil, &outbox.Message{Topic: "t", Header: map[string]string{"a": "b"}}))
	hammer.Add(f, []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	hammer.Fuzz(f, func(t *testing.T, b []byte) {
		m, err := outbox.DecodeMessage(b)
		if err != nil && !errors.Is(err, outbox.ErrUnreadable) {
			t.Errorf("%v is not ErrUnreadable", err)
		}
		if err == nil {
			if got, err := outbox.DecodeMessage(outbox.AppendMessage(nil, &m)); err != nil || !same(&got, &m) {
				t.Errorf("%+v comes back as %+v, %v", m, got, err)
			}
		}
	})
}

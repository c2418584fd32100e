package clitest

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/outbox"
)

// FailedMessages puts a dead letter into the outbox of a store, message 1, and one that
// fails, message 2. Text is their payload and the reason of the failure; what is valid of
// it there is also their topic, group and header.
func FailedMessages(t *testing.T, s *storeurl.Opened, text string) {
	t.Helper()
	clean := strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' {
			return -1
		}
		return r
	}, text), "")
	Enqueue(t, s, outbox.Message{Topic: clean, Key: "key-1", Payload: []byte(text), Header: map[string]string{"X-A": clean}})
	Deliver(t, s, outbox.AckDead, text)
	Enqueue(t, s, outbox.Message{Topic: clean, Group: clean, Key: "key-2", Payload: []byte(text)})
	Deliver(t, s, outbox.AckRetry, text)
}

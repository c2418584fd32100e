package main_test

import (
	"bytes"
	"regexp"
	"testing"

	main "github.com/retrysafe/retrysafe/examples/resumable-payment"
)

const story = `request 1
  attempt 1 books the ride
  attempt 1 calls the provider, call 1: {"ride": 1, "amount": 4200, "attempt": 1}
    provider: ch_1, known before: false
    provider: the reply is lost
  failed, ask again: ...
request 2
  attempt 2 calls the provider, call 2: {"ride": 1, "amount": 4200, "attempt": 1}
    provider: ch_1, known before: true
  attempt 2 writes the receipt
  201 {"charge":"ch_1","ride":1}, replayed: false
request 3
  201 {"charge":"ch_1","ride":1}, replayed: true
1 ride, 1 charge, 1 receipt
`

func TestStory(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := main.Run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if got := regexp.MustCompile(`ask again: .*`).ReplaceAllString(out.String(), "ask again: ..."); got != story {
		t.Errorf("it tells\n%s\nwant\n%s", got, story)
	}
}

package outbox_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/outbox"
)

func TestOutbox(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	here := clitest.NewShell(t, url)
	here.Run("outbox list").Exits(0).Says("none")
	clitest.FailedMessages(t, s, "the receiver answered 500")
	here.Run("outbox list").Exits(0).Golden("outbox.txt")
	here.Run("outbox list --failing --long").Exits(0).Golden("outbox-failing.txt")
	here.Run("outbox list --format json").Exits(0).Golden("outbox.jsonl")
	here.Run("outbox list --failing --format json").Exits(0).Says(`"id":2,"dead":false`)
	here.Run("outbox show 1 --body").Exits(0).Golden("outbox-show.txt")
	here.Run("outbox show 2").Exits(0).Golden("outbox-show-failing.txt")
	here.Run("outbox show 2 --format json").Exits(0).Says(`"dead":false`)
	here.Run("outbox show 3").Exits(1).Says("neither dead nor failing").InOneLine()

	here.Run("outbox drop 2 --why x --yes").Exits(1).Says("not a dead letter: its delivery fails, and is still tried").InOneLine()
	here.Run("outbox skip 1 --why x --yes").Exits(1).Says("a dead letter already").InOneLine()
	here.Run("outbox skip 2 --why x").Exits(2).Says("--yes").InOneLine()
	here.Run("outbox skip 2 --why x --yes").Exits(0).Says("message 2: buried as a dead letter")
	here.Run("outbox skip 2 --why x --yes --revision 1").Exits(0).Says("this was done before")
	here.Run("outbox skip 2 --why x --yes --revision 2").Exits(1).Says("a dead letter already").InOneLine() // another state of it, so another action

	here.Run("outbox redrive 1 --why x --window 1ns").Exits(1).Says("--force sends it again").InOneLine()
	here.Run("outbox redrive 1 --why x --window 1ns --force").Exits(0).Says("message 1: sent again")
	here.Run("outbox redrive 1 --why x").Exits(1).Says("neither dead nor failing")
	here.Typing("no\n").Run("outbox drop 2 --why x").Exits(1).Says("forgotten for good", "not confirmed")
	here.Typing("yes\n").Run("outbox drop 2 --why x").Exits(0).Says("message 2: dropped")
	here.Run("outbox drop 2 --why x --yes").Exits(1)
	here.Run("outbox list").Exits(0).Says("none")
	here.Run("keys audit").Exits(0).Says("drop letter", "redrive letter", "skip message")
}

func TestOutboxListGoesOn(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	for range 5 {
		clitest.Enqueue(t, s, outbox.Message{Topic: "t", Payload: []byte("p\xff")})
	}
	clitest.Deliver(t, s, outbox.AckDead, "no")
	here := clitest.NewShell(t, url)
	here.Run("outbox list --limit 2").Exits(0).Says("there is more: the same with --after 2")
	if got := here.Run("outbox list --limit 3 --after 2 --format json").Exits(0); strings.Count(got.Out, "\n") != 3 || got.Err != "" {
		t.Errorf("%s%s", got.Out, got.Err)
	}
	if got := here.Run("outbox list --all --format json").Exits(0); strings.Count(got.Out, "\n") != 5 {
		t.Errorf("%s%s", got.Out, got.Err)
	}
	if got := here.Run("outbox list --all --limit 2 --format json").Exits(0); strings.Count(got.Out, "\n") != 5 {
		t.Errorf("%s%s", got.Out, got.Err)
	}
	here.Run("outbox list --limit 5").Exits(0).Hides("there is more")
	here.Run("outbox list --limit 0").Exits(2).Says("--all").InOneLine()
	here.Run("outbox show 3 --format json").Exits(0).Says(`"payload_bytes":2`).Hides("payload_base64")
	here.Run("outbox show 3 --body --format json").Exits(0).Says(`"payload_base64":"cP8="`)
	for _, id := range []string{"0", "-1", "1x"} {
		here.RunArgs("outbox", "show", "--", id).Exits(2).Says("is not the ID of a message").InOneLine()
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	here := clitest.NewShell(t, url)
	here.Run("outbox depth").Exits(0).Says("waiting  0\n", "dead     0\n")
	clitest.FailedMessages(t, s, "the receiver answered 500")
	clitest.Enqueue(t, s, outbox.Message{Topic: "t", Payload: []byte("p")})
	here.Run("outbox depth").Exits(0).Says("waiting  2", "ready    1", "failing  1", "dead     1, the oldest for", "retrysafe outbox list")
	here.Run("outbox depth -o json").Exits(0).Says(`"waiting":2`, `"ready":1`, `"failing":1`, `"dead":1`)
	here.Run("outbox redrive 1 --why x").Exits(0)
	here.Run("outbox show 1").Exits(1).Says("neither dead nor failing").InOneLine() // it waits, and message 2 is another
}

// delivered leaves the receipt of a message that settled a key, and that of one that
// settled none.
func delivered(t *testing.T, s *storeurl.Opened, settled *retrysafe.Record) {
	t.Helper()
	clitest.Enqueue(t, s, outbox.Message{Topic: "charges", Key: "downstream-1", Settles: settled}, outbox.Message{Topic: "mails", Key: "downstream-2"})
	held, err := s.Outbox.Lease(t.Context(), retrysafe.Owner{9}, time.Minute)
	clitest.Must(t, err)
	due, err := s.Outbox.Due(t.Context(), held.Shards, 10)
	clitest.Must(t, err)
	acks := make([]outbox.Ack, len(due))
	for i := range due {
		d := &due[i]
		acks[i] = outbox.Ack{ID: d.ID, Shard: d.Shard, Kind: outbox.AckDelivered, Tries: 1, Keep: time.Hour, Message: &d.Message}
		if d.Topic == "charges" {
			acks[i].ProviderRef = "ch_17"
		}
	}
	_, err = s.Outbox.Ack(t.Context(), acks)
	clitest.Must(t, err)
}

func TestReceipts(t *testing.T) {
	t.Parallel()
	url, s := clitest.SQLite(t)
	here := clitest.NewShell(t, url)
	here.Run("outbox receipts").Exits(0).Says("none")
	r := clitest.Put(t, s.Store, clitest.Record("tenant-a", "key-1", retrysafe.StateInProgress))
	delivered(t, s, &r)
	here.Run("outbox receipts").Exits(0).Says("charges", "ch_17", "tenant-a key-1", "mails")
	here.Run("outbox receipts --provider-ref ch_17").Exits(0).Says("tenant-a key-1").Hides("mails")
	here.Run("outbox receipts tenant-a key-1 --long").Exits(0).Says("downstream-1").Hides("mails")
	here.Run("outbox receipts tenant-b key-1").Exits(0).Says("none")
	here.Run("outbox receipts key-1").Exits(2).Says("SCOPE", "KEY").InOneLine()
	here.Run("outbox receipts --limit 0").Exits(2).Says("--all").InOneLine()
	here.Run("outbox receipts --limit 1").Exits(0).Says("there is more: the same with --after 1")
	here.Run("outbox receipts --limit 1 --after 1").Exits(0).Says("mails").Hides("there is more")
	if got := here.Run("outbox receipts --all --limit 1 -o json").Exits(0).Says(`"provider_ref":"ch_17"`, `"scope":"tenant-a"`); strings.Count(got.Out, "\n") != 2 {
		t.Errorf("%s", got.Out)
	}
	here.Run("outbox show 1").Exits(0).Says("delivered", "ch_17", "tenant-a key-1", "downstream-1", "then the receipt is forgotten")
	var receipt struct {
		Delivered bool
		At        time.Time `json:"delivered_at"`
		Expires   time.Time `json:"expires_at"`
	}
	clitest.Must(t, json.Unmarshal([]byte(here.Run("outbox show 1 -o json").Exits(0).Out), &receipt))
	if !receipt.Delivered || time.Since(receipt.At).Abs() > 10*time.Minute || receipt.Expires.Sub(receipt.At) < 50*time.Minute {
		t.Errorf("the receipt is %+v", receipt)
	}
	here.Run("outbox show 1 --long").Exits(0).Says(terminal.Exact(receipt.At), terminal.Exact(receipt.Expires)+" (then the receipt is forgotten)")
	here.Run("outbox show 3").Exits(1).Says("delivered without a receipt").InOneLine()
	here.Run("keys show tenant-a key-1").Exits(0).Says("receipts", "message 1, charges, delivered", "provider ref ch_17").Hides("mails")
	var shown struct {
		Receipts []struct {
			Message int64
			Topic   string
			Key     string    `json:"downstream_key"`
			At      time.Time `json:"delivered_at"`
			Expires time.Time `json:"expires_at"`
		}
	}
	clitest.Must(t, json.Unmarshal([]byte(here.Run("keys show tenant-a key-1 -o json").Exits(0).Out), &shown))
	if n := len(shown.Receipts); n != 1 || shown.Receipts[0].Message != 1 || shown.Receipts[0].Topic != "charges" || shown.Receipts[0].Key != "downstream-1" ||
		!shown.Receipts[0].At.Equal(receipt.At) || !shown.Receipts[0].Expires.Equal(receipt.Expires) {
		t.Errorf("the key has %+v, and the message %+v", shown.Receipts, receipt)
	}

	done := r.Update()
	done.State, done.Result, done.Term = retrysafe.StateCompleted, &retrysafe.Result{Status: 201}, time.Hour
	_, err := s.Store.Swap(t.Context(), done)
	clitest.Must(t, err)
	here.Run("keys erase tenant-a key-1 --yes --why", "request 42").Exits(0)
	here.Run("outbox receipts").Exits(0).Says("mails").Hides("tenant-a", "ch_17")
	here.Run("outbox show 1").Exits(1).Says("delivered without a receipt").InOneLine() // that of message 2 is another
}

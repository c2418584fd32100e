package outbox_test

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
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
	here.Run("outbox show 1 --body").Exits(0).Golden("outbox-show.txt")
	here.Run("outbox show 2").Exits(0).Golden("outbox-show-failing.txt")
	here.Run("outbox show 2 --format json").Exits(0).Says(`"dead":false`)
	here.Run("outbox show 3").Exits(1).Says("neither dead nor failing").InOneLine()

	here.Run("outbox drop 2 --why x --yes").Exits(1).Says("not a dead letter: its delivery fails, and is still tried").InOneLine()
	here.Run("outbox skip 1 --why x --yes").Exits(1).Says("a dead letter already").InOneLine()
	here.Run("outbox skip 2 --why x").Exits(2).Says("--yes").InOneLine()
	here.Run("outbox skip 2 --why x --yes").Exits(0).Says("message 2: buried as a dead letter")
	here.Run("outbox skip 2 --why x --yes --revision 1").Exits(0).Says("this was done before")

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
		clitest.Enqueue(t, s, outbox.Message{Topic: "t", Payload: []byte("p")})
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
}

package main_test

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/outbox"
)

// letters puts a dead letter, message 1, and one that fails, message 2.
func letters(t *testing.T, s *storeurl.Opened, text string) {
	t.Helper()
	clean := strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' {
			return -1
		}
		return r
	}, text), "")
	enqueue(t, s, outbox.Message{Topic: clean, Key: "key-1", Payload: []byte(text), Header: map[string]string{"X-A": clean}})
	deliver(t, s, outbox.Buried, text)
	enqueue(t, s, outbox.Message{Topic: clean, Group: clean, Key: "key-2", Payload: []byte(text)})
	deliver(t, s, outbox.Again, text)
}

func TestOutbox(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	here := newShell(t, url)
	here.run("outbox list").exits(0).says("none")
	letters(t, s, "the receiver answered 500")
	here.run("outbox list").exits(0).golden("outbox.txt")
	here.run("outbox list --failing --long").exits(0).golden("outbox-failing.txt")
	here.run("outbox list --format json").exits(0).golden("outbox.jsonl")
	here.run("outbox show 1 --body").exits(0).golden("outbox-show.txt")
	here.run("outbox show 2").exits(0).golden("outbox-show-failing.txt")
	here.run("outbox show 2 --format json").exits(0).says(`"dead":false`)
	here.run("outbox show 3").exits(1).says("neither dead nor failing").inOneLine()

	here.run("outbox drop 2 --why x --yes").exits(1).says("no dead letter: it fails, and is still sent").inOneLine()
	here.run("outbox skip 1 --why x --yes").exits(1).says("a dead letter already").inOneLine()
	here.run("outbox skip 2 --why x").exits(2).says("--yes").inOneLine()
	here.run("outbox skip 2 --why x --yes").exits(0).says("message 2: buried as a dead letter")
	here.run("outbox skip 2 --why x --yes --revision 1").exits(0).says("this was done before")

	here.run("outbox redrive 1 --why x --window 1ns").exits(1).says("--force sends it again").inOneLine()
	here.run("outbox redrive 1 --why x --window 1ns --force").exits(0).says("message 1: sent again")
	here.run("outbox redrive 1 --why x").exits(1).says("neither dead nor failing")
	here.typing("no\n").run("outbox drop 2 --why x").exits(1).says("forgotten for good", "not confirmed")
	here.typing("yes\n").run("outbox drop 2 --why x").exits(0).says("message 2: dropped")
	here.run("outbox drop 2 --why x --yes").exits(1)
	here.run("outbox list").exits(0).says("none")
	here.run("keys audit").exits(0).says("drop letter", "redrive letter", "skip message")
}

func TestOutboxListGoesOn(t *testing.T) {
	t.Parallel()
	url, s := sqlite(t)
	for range 5 {
		enqueue(t, s, outbox.Message{Topic: "t", Payload: []byte("p")})
	}
	deliver(t, s, outbox.Buried, "no")
	here := newShell(t, url)
	here.run("outbox list --limit 2").exits(0).says("there is more: the same with --after 2")
	if got := here.run("outbox list --limit 3 --after 2 --format json").exits(0); strings.Count(got.out, "\n") != 3 || got.err != "" {
		t.Errorf("%s%s", got.out, got.err)
	}
	if got := here.run("outbox list --all --format json").exits(0); strings.Count(got.out, "\n") != 5 {
		t.Errorf("%s%s", got.out, got.err)
	}
}

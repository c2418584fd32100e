package terminal_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

func TestWordsOfAShell(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "''", "abc": "abc", "a b": "'a b'", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "a;b": "'a;b'", "ch_17": "ch_17", "sqlite:a.db": "sqlite:a.db",
	} {
		if got := terminal.ShellWord(text); got != want {
			t.Errorf("ShellWord(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		if got := terminal.Number(n); got != want {
			t.Errorf("Number(%d) = %s", n, got)
		}
	}
	if got := terminal.Count(1, "key", "keys") + terminal.Count(2000, "key", "keys"); got != "1 key2,000 keys" {
		t.Error(got)
	}
	if got := terminal.Clip("äöüß", 3); got != "äö…" {
		t.Error(got)
	}
}

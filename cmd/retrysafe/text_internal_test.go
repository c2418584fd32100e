package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

// What is shown of a name is that name's alone, and leads back to it.
func FuzzNamed(f *testing.F) {
	for _, text := range []string{"", "tenant-a", " ", `"`, `"a"`, `\`, "\x00", "\xff", "ü", "\u202e", "-x", "'", "a b"} {
		hammer.Add(f, text)
	}
	hammer.Fuzz(f, func(t *testing.T, text string) {
		shown := named(text)
		if got := unnamed(shown); got != text {
			t.Errorf("%q is shown as %s, which is %q", text, shown, got)
		}
		for _, c := range shown + visible(text) {
			if unprintable(c) {
				t.Errorf("%q is shown with %U", text, c)
			}
		}
		var b bytes.Buffer
		if err := writeJSON(&b, text); err != nil {
			t.Fatal(err)
		}
		for _, c := range strings.TrimSuffix(b.String(), "\n") {
			if unprintable(c) {
				t.Errorf("%q has %U in JSON", text, c)
			}
		}
		var back string
		if err := json.Unmarshal(b.Bytes(), &back); err != nil || utf8.ValidString(text) && back != text {
			t.Errorf("%q becomes %q in JSON, %v", text, back, err)
		}
	})
}

func TestWordsOfAShell(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "''", "abc": "abc", "a b": "'a b'", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "a;b": "'a;b'", "ch_17": "ch_17", "sqlite:a.db": "sqlite:a.db",
	} {
		if got := word(text); got != want {
			t.Errorf("word(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "just now", time.Second: "1 s ago", 59 * time.Second: "59 s ago", 3 * time.Minute: "3 min ago", 47 * time.Hour: "47 h ago", 72 * time.Hour: "3 d ago",
		-time.Millisecond: "in 1 s", -90 * time.Minute: "in 1 h", -100 * 365 * 24 * time.Hour: "never",
	} {
		if got := ago(now.Add(-d), now); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if got := ago(time.Time{}, now); got != "-" {
		t.Errorf("no time is %s", got)
	}
	if got := exact(now.In(time.FixedZone("", 3600))); got != "2026-03-01T03:00:00.000000Z" {
		t.Errorf("exact = %s", got)
	}
}

func TestMoments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-03-01": "2026-03-01T00:00:00Z", "2026-03-01T03:00": "2026-03-01T03:00:00Z", "2026-03-01T03:00:00+01:00": "2026-03-01T03:00:00+01:00",
	} {
		var m moment
		if err := m.Set(text); err != nil || m.String() != want {
			t.Errorf("%s: %s, %v", text, m.String(), err)
		}
	}
	var m moment
	if err := m.Set("12h"); err != nil || time.Since(m.Time) < 12*time.Hour {
		t.Errorf("12h: %v, %v", m.Time, err)
	}
	for _, text := range []string{"", "yesterday", "-1h", "2026"} {
		if err := m.Set(text); err == nil {
			t.Errorf("%q is taken for a time", text)
		}
	}
}

func TestErrorsSayNothingTwice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"pgstore: open: open: no":                          "open: no",
		"operator: retrysafe: no such key":                 "no such key",
		"failed: a (b): dial: no c\n\ta (b): dial: no c":   "failed: a (b): dial: no c",
		"one two one two":                                  "one two one two",
		"1 2 3 1 2 3 1 2 3 4":                              "1 2 3 4",
		"encryption: sealed: keys file: \"keys\" has none": "encryption: keys file: \"keys\" has none",
	} {
		if got := plainly(errors.New(text)); got != want {
			t.Errorf("%q is said as %q, want %q", text, got, want)
		}
	}
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		if got := grouped(n); got != want {
			t.Errorf("grouped(%d) = %s", n, got)
		}
	}
	if got := many(1, "key", "keys") + many(2000, "key", "keys"); got != "1 key2,000 keys" {
		t.Error(got)
	}
	if got := clipped("äöüß", 3); got != "äö…" {
		t.Error(got)
	}
}

// At a terminal progress is one line that changes and goes; elsewhere it is a line now
// and then.
func TestProgress(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{true, false} {
		var b bytes.Buffer
		p := &program{stderr: &b, person: func(any) bool { return live }}
		g := p.progress()
		now := g.started
		g.now = func() time.Time { return now }
		for i := range 40 {
			now = now.Add(time.Second)
			g.show(int64(i+1)*1000, "copied")
		}
		g.end()
		if live {
			if got := b.String(); strings.Contains(got, "\n") || strings.Count(got, "\r") != 42 || !strings.Contains(got, "\r40,000 copied (1,000/s)") || !strings.HasSuffix(got, " \r") {
				t.Errorf("at a terminal: %q", got)
			}
		} else if got := b.String(); got != "10,000 copied (1,000/s)\n20,000 copied (1,000/s)\n30,000 copied (1,000/s)\n40,000 copied (1,000/s)\n" {
			t.Errorf("elsewhere: %q", got)
		}
	}
}

// Of work whose end is known progress says how long it takes at the pace of the work,
// whenever that began.
func TestProgressOfAPart(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := &program{stderr: &b, person: func(any) bool { return false }}
	g := p.progress()
	now := g.started.Add(time.Hour)
	g.now = func() time.Time { return now }
	began := now.Add(-30 * time.Second)
	g.showPart(1000, 5000, "sim", began)
	now = now.Add(10 * time.Second)
	g.showPart(5000, 5000, "sim", began)
	if got := b.String(); got != "1,000 of 5,000 in sim (2m0s left)\n5,000 of 5,000 in sim\n" {
		t.Error(got)
	}
}

func TestBuildInfo(t *testing.T) {
	t.Parallel()
	b := buildOf(&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-03-01T03:00:00Z"}, {Key: "vcs.modified", Value: "true"},
	}})
	if got := b.String(); !strings.HasPrefix(got, "retrysafe v1.2.3 (0123456789ab of 2026-03-01T03:00:00Z, modified), go") {
		t.Error(got)
	}
	if got := buildOf(nil).String(); !strings.HasPrefix(got, "retrysafe (devel), go") {
		t.Error(got)
	}
}

func TestCursors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"!", "_w", "gICAgICAgICAgAE"} {
		if ref, ok := parseCursor(text); ok {
			t.Errorf("%q is taken for %q", text, fmt.Sprint(ref))
		}
	}
}

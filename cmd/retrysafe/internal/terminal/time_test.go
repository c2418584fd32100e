package terminal_test

import (
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

func TestAgo(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "just now", time.Second: "1 s ago", 59 * time.Second: "59 s ago", 3 * time.Minute: "3 min ago", 47 * time.Hour: "47 h ago", 72 * time.Hour: "3 d ago",
		-time.Millisecond: "in 1 s", -90 * time.Minute: "in 1 h", -24*time.Hour + time.Second: "in 24 h", -7*24*time.Hour + time.Minute: "in 7 d", -time.Minute + time.Millisecond: "in 1 min", -100 * 365 * 24 * time.Hour: "never",
	} {
		if got := terminal.Ago(now.Add(-d), now); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if got := terminal.Ago(time.Time{}, now); got != "-" {
		t.Errorf("no time is %s", got)
	}
	if got := terminal.Exact(now.In(time.FixedZone("", 3600))); got != "2026-03-01T03:00:00.000000Z" {
		t.Errorf("Exact = %s", got)
	}
}

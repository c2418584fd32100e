package command_test

import (
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
)

func TestMoments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-03-01": "2026-03-01T00:00:00Z", "2026-03-01T03:00": "2026-03-01T03:00:00Z", "2026-03-01T03:00:00+01:00": "2026-03-01T03:00:00+01:00",
	} {
		var m command.Time
		if err := m.Set(text); err != nil || m.String() != want {
			t.Errorf("%s: %s, %v", text, m.String(), err)
		}
	}
	var m command.Time
	if err := m.Set("12h"); err != nil || time.Since(m.Time) < 12*time.Hour {
		t.Errorf("12h: %v, %v", m.Time, err)
	}
	for _, text := range []string{"", "yesterday", "-1h", "2026"} {
		if err := m.Set(text); err == nil {
			t.Errorf("%q is taken for a time", text)
		}
	}
}

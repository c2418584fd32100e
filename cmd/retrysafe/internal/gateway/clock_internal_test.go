package gateway

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// The store's clock is compared with the time that has passed here. A step of a minute
// or more is logged, in either direction, and once: the next reservation goes by the
// clock as it is now.
func TestStepsOfTheStoresClockAreLogged(t *testing.T) {
	t.Parallel()
	log := new(bytes.Buffer)
	var seen int
	w := &clockWatch{logger: slog.New(slog.NewTextHandler(log, nil)), next: observerFunc(func(retrysafe.Event) { seen++ })}
	ahead := 3 * time.Hour // that the two machines do not agree means nothing
	reserve := func() string {
		log.Reset()
		w.Observe(retrysafe.Event{Kind: retrysafe.EventReserved, Revision: time.Now().Add(ahead).UnixMicro()})
		return log.String()
	}
	for _, c := range []struct {
		by   time.Duration
		want []string
	}{
		{0, nil}, {10 * time.Second, nil}, {24 * time.Hour, []string{"set forward", "by=2", "fix="}}, {0, nil},
		{-24 * time.Hour, []string{"set back", "by=2", "fix="}}, {0, nil},
	} {
		ahead += c.by
		got := reserve()
		if len(c.want) == 0 && got != "" {
			t.Errorf("a step of %v is logged: %s", c.by, got)
		}
		for _, word := range c.want {
			if !strings.Contains(got, word) {
				t.Errorf("of a step of %v there is no %q in %q", c.by, word, got)
			}
		}
	}
	w.Observe(retrysafe.Event{Kind: retrysafe.EventCompleted, Revision: 1}) // its revision is not the clock
	if log.Len() != 0 || seen != 7 {
		t.Errorf("%d events were passed on, want 7; log: %s", seen, log)
	}
}

type observerFunc func(retrysafe.Event)

func (f observerFunc) Observe(e retrysafe.Event) { f(e) }

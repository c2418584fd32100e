//go:build failpoint

package failpoint

import (
	"testing"
	"time"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	got := parse("a.b=kill,c=kill@3,d=pause,e=50ms,*=note")
	want := []point{{name: "a.b", action: "kill", at: 1}, {name: "c", action: "kill", at: 3}, {name: "d", action: "pause"}, {name: "e", action: "50ms"}, {name: "*", action: "note"}}
	if len(got) != len(want) {
		t.Fatalf("got %d points", len(got))
	}
	for i := range want {
		if g, w := got[i], &want[i]; g.name != w.name || g.action != w.action || g.at != w.at {
			t.Errorf("got %s=%s@%d, want %s=%s@%d", g.name, g.action, g.at, w.name, w.action, w.at)
		}
	}
	began := time.Now()
	p := got[3]
	p.hit("e")
	if time.Since(began) < 50*time.Millisecond {
		t.Error("it did not stay")
	}
}

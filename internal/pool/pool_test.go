package pool_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/internal/pool"
)

type object struct{ used int }

// The hook sees an object before its next user does; without New the object is a new
// one.
func TestHookSeesWhatIsPutBack(t *testing.T) { //nolint:paralleltest // the hook is the program's
	var seen []int
	pool.OnPut(func(x any) {
		o := x.(*object)
		seen = append(seen, o.used)
		o.used = -1
	})
	defer pool.OnPut(func(any) {})
	var p pool.Of[object]
	o := p.Get()
	if o.used != 0 {
		t.Errorf("a new object is %+v", o)
	}
	o.used = 7
	p.Put(o)
	if len(seen) != 1 || seen[0] != 7 || o.used != -1 {
		t.Errorf("the hook has seen %v and left %+v", seen, o)
	}
	made := pool.Of[object]{New: func() *object { return &object{used: 3} }}
	if got := made.Get().used; got != 3 {
		t.Errorf("New is not used: %d", got)
	}
}

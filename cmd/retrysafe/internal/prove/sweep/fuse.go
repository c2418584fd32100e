package sweep

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
)

// fuse is a gate that ends the process, with no warning, when its points have been
// passed so often. There is one before and one after each step.
type fuse struct {
	mu   sync.Mutex
	left int // 0: it never burns
	out  io.Writer
}

// pass implements gate.
func (f *fuse) pass(_ context.Context, name string, do func()) error {
	f.point("before " + name)
	do()
	f.point("after " + name)
	return nil
}

func (f *fuse) point(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left--; f.left != 0 {
		return
	}
	_, _ = fmt.Fprintf(f.out, "%s%s\n", saysDying, name) // without it the parent does not count the point
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {} // until the kill arrives
}

//go:build unix

package http1

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/neverresend"
)

// A new connection that accepts nothing of a request has sent nothing, and the caller is told
// so: no further one is opened for it.
func TestNewConnectionThatAcceptsNothing(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	client := New(&Options{Addr: server.Listener.Addr().String(), DialTimeout: time.Minute, MaxIdle: 4, IdleTimeout: time.Hour, MaxHead: 1 << 20})
	t.Cleanup(client.CloseIdle)
	var opened []syscall.RawConn
	client.dialer.ControlContext = func(_ context.Context, _, _ string, c syscall.RawConn) error {
		opened = append(opened, c)
		return nil
	}
	ctx := &watchedContext{Context: t.Context(), done: make(chan struct{}), watched: func() {
		if n := len(opened); n == 1 || n == 2 { // a third one is whole
			_ = opened[n-1].Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_WR) })
		}
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(&Call{Request: r})
	if err == nil {
		res.Body.Close()
	}
	if !errors.Is(err, neverresend.ErrNotSent) || len(opened) != 1 {
		t.Errorf("Do = %v, with %d connections; want one, and that nothing was sent", err, len(opened))
	}
}

// A watchedContext tells that its end is watched, which an exchange does when it has a
// connection.
type watchedContext struct {
	context.Context
	done    chan struct{}
	watched func()
}

func (c *watchedContext) Done() <-chan struct{} { return c.done }

func (c *watchedContext) AfterFunc(func()) (stop func() bool) {
	c.watched()
	return func() bool { return true }
}

package listener

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

// complaints writes what net/http logs. Clients have a hand in it, in the words and in
// how many there are: only a handler that panics is an error.
type complaints struct{ slog.Handler }

// maxComplaint has room for the stack of a panic.
const maxComplaint = 8 << 10

func (c complaints) Handle(ctx context.Context, r slog.Record) error {
	if !strings.Contains(r.Message, "panic") {
		r.Level = slog.LevelDebug
		if !c.Enabled(ctx, r.Level) {
			return nil
		}
	}
	r.Message = "front: " + logged(r.Message, maxComplaint)
	return c.Handler.Handle(ctx, r)
}

// maxText bounds what a client may put into a line of the log.
const maxText = 512

// logged returns foreign text for a line of the log: escaped, and cut at most bytes.
func logged(text string, most int) string { return printable.Value(printable.Cut(text, most)) }

// A pace lets one line a second through where clients decide how many there are.
type pace struct {
	next    atomic.Int64 // since epoch
	skipped atomic.Int64
}

// log writes a line, with how many like it were not written.
func (p *pace) log(logger *slog.Logger, level slog.Level, msg string, attrs ...slog.Attr) {
	now, next := int64(time.Since(epoch)), p.next.Load()
	if now < next || !p.next.CompareAndSwap(next, now+int64(time.Second)) {
		p.skipped.Add(1)
		return
	}
	if n := p.skipped.Swap(0); n > 0 {
		attrs = append(attrs, slog.Int64("skipped", n))
	}
	logger.LogAttrs(context.Background(), level, msg, attrs...)
}

package listener

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

// serverLog writes what net/http logs. Clients can cause these lines, so only a panic
// of a handler is logged as an error.
type serverLog struct{ slog.Handler }

// maxServerLog is long enough for the stack of a panic.
const maxServerLog = 8 << 10

func (c serverLog) Handle(ctx context.Context, r slog.Record) error {
	if !strings.Contains(r.Message, "panic") {
		r.Level = slog.LevelDebug
		if !c.Enabled(ctx, r.Level) {
			return nil
		}
	}
	r.Message = "listener: " + logged(r.Message, maxServerLog)
	return c.Handler.Handle(ctx, r)
}

// maxText bounds what a client may put into a line of the log.
const maxText = 512

// logged returns foreign text for a line of the log: escaped, and cut at most bytes.
func logged(text string, most int) string { return printable.Value(printable.Cut(text, most)) }

// A logPace lets one line a second through, for lines that clients can cause.
type logPace struct {
	next    atomic.Int64 // since epoch
	skipped atomic.Int64
}

// log writes a line, with how many like it were not written.
func (p *logPace) log(logger *slog.Logger, level slog.Level, msg string, attrs ...slog.Attr) {
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

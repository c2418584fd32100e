package demo

import (
	"context"
	"log/slog"

	"github.com/retrysafe/retrysafe"
)

// withoutTraffic is a log that leaves out what the duties say of keys of the traffic, so that
// it does not scroll the commands to try away.
type withoutTraffic struct{ slog.Handler }

// Handle implements [slog.Handler].
func (h withoutTraffic) Handle(ctx context.Context, r slog.Record) error {
	ofTraffic := false
	r.Attrs(func(a slog.Attr) bool {
		ofTraffic = a.Key == "scope" && a.Value.String() == retrysafe.HashKey(trafficTenant)
		return !ofTraffic
	})
	if ofTraffic {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h withoutTraffic) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withoutTraffic{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h withoutTraffic) WithGroup(name string) slog.Handler {
	return withoutTraffic{h.Handler.WithGroup(name)}
}

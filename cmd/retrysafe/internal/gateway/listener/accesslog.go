package listener

import (
	"context"
	"log/slog"
	"time"
)

// A Line is what is logged of one request.
type Line struct {
	Method string
	// Path is the request's, without its query.
	Path string
	// Route is the pattern that matched.
	Route string
	// Status is zero if there was no answer.
	Status int
	// Bytes is the size of the answer's body, negative if it is not known.
	Bytes int64
	// Took is how long it took, Upstream how much of that the upstream had it.
	Took, Upstream time.Duration
	// Tenant and Key are hashes, in hexadecimal digits. A value that is not a hash is left
	// out: a key in the log could be misused.
	Tenant, Key string
	// Outcome is what became of the request: run, replayed, refused … Code is that of
	// the problem that the client was told of.
	Outcome, Code string
	// Attempt is the number of the attempt, if this was one. Later says that a worker
	// made it, and no client waited.
	Attempt int
	Later   bool
	// Trace is the id of the trace of the request, if it is sampled.
	Trace string
	// Guarded is false for requests that were let through untouched.
	Guarded bool
}

// An AccessLog writes a line for each request that is guarded or was answered with a
// 5xx or not at all. What a client has sent is escaped, so that it cannot affect a
// terminal. It is safe for concurrent use.
type AccessLog struct {
	// Logger gets the lines. Default slog.Default().
	Logger *slog.Logger
	// All has a line for requests that were let through untouched, too.
	All bool
}

// Write writes the line of one request.
func (l *AccessLog) Write(ctx context.Context, x Line) {
	failed := x.Status >= 500 || x.Status == 0
	if !x.Guarded && !failed && !l.All {
		return
	}
	logger, level := l.Logger, slog.LevelInfo
	if logger == nil {
		logger = slog.Default()
	}
	if failed {
		level = slog.LevelWarn
	}
	if logger.Enabled(ctx, level) {
		logger.LogAttrs(ctx, level, "request", x.attrs(make([]slog.Attr, 0, 14))...)
	}
}

// attrs appends what there is to say.
func (x *Line) attrs(to []slog.Attr) []slog.Attr {
	say := func(name, text string) {
		if text != "" {
			to = append(to, slog.String(name, logged(text, maxText)))
		}
	}
	say("method", x.Method)
	say("path", x.Path)
	to = append(to, slog.Int("status", x.Status), slog.Duration("took", x.Took))
	if x.Upstream > 0 {
		to = append(to, slog.Duration("upstream", x.Upstream))
	}
	if x.Bytes >= 0 {
		to = append(to, slog.Int64("bytes", x.Bytes))
	}
	say("route", x.Route)
	say("outcome", x.Outcome)
	say("code", x.Code)
	say("tenant", hashed(x.Tenant))
	say("key", hashed(x.Key))
	say("trace", hashed(x.Trace))
	if x.Attempt > 0 {
		to = append(to, slog.Int("attempt", x.Attempt))
	}
	if x.Later {
		to = append(to, slog.Bool("later", true))
	}
	return to
}

// hashed returns s if it is a hash.
func hashed(s string) string {
	if len(s) > 64 {
		return "not-a-hash"
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "not-a-hash"
		}
	}
	return s
}

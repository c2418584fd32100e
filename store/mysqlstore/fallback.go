package mysqlstore

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/go-sql-driver/mysql"
)

// fallbacks notes the steps that were to take one round trip and go by single statements,
// because the server has refused the short way. Where another transaction is the cause that
// is ordinary, and happens now and then. A server or a proxy that never takes the short way
// costs each step further round trips, and nothing else shows it: so each cause is logged,
// once.
type fallbacks struct {
	logger *slog.Logger
	seen   sync.Map // of fallback
}

// fallback is what was refused, and by which of the server's errors.
type fallback struct {
	what string
	code uint16
}

// note logs that the server has refused what, unless it did so by the same error before.
// The server's own text is left out: it may quote the statement, and with it an answer.
func (f *fallbacks) note(ctx context.Context, what string, err error) {
	refused := &mysql.MySQLError{} // without a number, if the server has only found no row
	if !errors.As(err, &refused) && !errors.Is(err, errNotKept) {
		return
	}
	cause := fallback{what, refused.Number}
	if _, again := f.seen.Load(cause); again {
		return
	}
	if _, again := f.seen.LoadOrStore(cause, nil); !again {
		f.logger.DebugContext(ctx, "mysqlstore: the server has refused "+what+", which goes by single statements instead; logged once for each cause",
			"cause", causeOf(err), "code", refused.Number)
	}
}

// causeOf says what an error of the server means for a step in one round trip.
func causeOf(err error) string {
	switch {
	case isLocked(err), isDeadlock(err):
		return "another transaction has locked a key"
	case isCode(err, codeExists):
		return "a key exists"
	case isCode(err, codeNull, codeRange), errors.Is(err, errNotKept):
		return "a record is not as its caller expects it"
	default:
		return "the server, or a proxy before it, does not take the statement"
	}
}

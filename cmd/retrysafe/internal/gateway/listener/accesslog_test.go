package listener_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/listener"
)

// Whatever a client sends, the log is lines of printable text, and keys are hashed,
// whatever handler writes them.
func TestW81_AccessLogIsHarmless(t *testing.T) {
	t.Parallel()
	evil := "/a\r\nlevel=ERROR msg=forged\x1b[2J\x00\x7f\u202egnp.exe\u2028\xff\\" + strings.Repeat("x", 5000)
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			l := listener.AccessLog{Logger: slog.New(handler(&out))}
			l.Write(t.Context(), listener.Line{
				Method: evil, Path: evil, Route: evil, Outcome: evil, Code: evil, Tenant: "acme corp", Key: "order-4711-secret",
				Status: 200, Guarded: true,
			})
			text := out.String()
			if lines := strings.Count(text, "\n"); lines != 1 {
				t.Errorf("it takes %d lines", lines)
			}
			for _, r := range strings.TrimSuffix(text, "\n") {
				if !unicode.IsPrint(r) {
					t.Errorf("%q is in the log", r)
				}
			}
			if strings.Contains(text, "order-4711") || strings.Contains(text, "acme corp") {
				t.Error("a key or a tenant is in the log")
			}
			if len(text) > 8<<10 {
				t.Errorf("it is %d bytes long", len(text))
			}
		})
	}
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	line := listener.Line{
		Method: "POST", Path: "/payments/7", Route: "POST /payments/{id}", Status: 201, Bytes: 42, Took: time.Second,
		Tenant: "00ff", Key: "0123456789abcdef", Outcome: "replayed", Guarded: true,
	}
	for _, c := range []struct {
		name   string
		all    bool
		change func(*listener.Line)
		want   map[string]any // nil: no line
	}{
		{"guarded", false, func(*listener.Line) {}, map[string]any{
			"level": "INFO", "msg": "request", "method": "POST", "path": "/payments/7", "route": "POST /payments/{id}", "status": 201.0,
			"bytes": 42.0, "took": 1e9, "tenant": "00ff", "key": "0123456789abcdef", "outcome": "replayed",
		}},
		{"passed", false, func(l *listener.Line) { l.Guarded = false }, nil},
		{"passed and failed", false, func(l *listener.Line) { *l = listener.Line{Method: "GET", Path: "/", Status: 502} }, map[string]any{
			"level": "WARN", "msg": "request", "method": "GET", "path": "/", "status": 502.0, "bytes": 0.0, "took": 0.0,
		}},
		{"all there is", false, func(l *listener.Line) {
			l.Status, l.Bytes, l.Upstream, l.Code, l.Attempt, l.Later = 0, -1, 2*time.Second, "outcome-unknown", 2, true
		}, map[string]any{
			"level": "WARN", "msg": "request", "method": "POST", "path": "/payments/7", "route": "POST /payments/{id}", "status": 0.0,
			"took": 1e9, "upstream": 2e9, "tenant": "00ff", "key": "0123456789abcdef", "outcome": "replayed",
			"code": "outcome-unknown", "attempt": 2.0, "later": true,
		}},
		{"passed, all wanted", true, func(l *listener.Line) { *l = listener.Line{Method: "GET", Path: "/", Status: 200} }, map[string]any{
			"level": "INFO", "msg": "request", "method": "GET", "path": "/", "status": 200.0, "bytes": 0.0, "took": 0.0,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			l := listener.AccessLog{Logger: slog.New(slog.NewJSONHandler(&out, nil)), All: c.all}
			x := line
			c.change(&x)
			l.Write(t.Context(), x)
			if c.want == nil {
				if out.Len() > 0 {
					t.Errorf("got %s, want no line", &out)
				}
				return
			}
			var got map[string]any
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("%v in %s", err, &out)
			}
			delete(got, "time")
			if len(got) != len(c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			for name, want := range c.want {
				if got[name] != want {
					t.Errorf("%s is %v, want %v", name, got[name], want)
				}
			}
		})
	}
}

func BenchmarkAccessLog(b *testing.B) {
	l := listener.AccessLog{Logger: slog.New(slog.NewJSONHandler(discard{}, nil))}
	line := listener.Line{
		Method: "POST", Path: "/payments/7", Route: "POST /payments/{id}", Status: 201, Bytes: 42, Took: time.Second,
		Tenant: "00ff", Key: "0123456789abcdef", Outcome: "replayed", Guarded: true,
	}
	b.Run("guarded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.Write(b.Context(), line)
		}
	})
	line.Guarded = false
	b.Run("passed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.Write(b.Context(), line)
		}
	})
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Package viewtest holds the view retrysafe_keys_readable of a store to the store's own
// decoder: what SQL reads in a row is what Go reads in it.
package viewtest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
)

// A Row is one row of the view. Times are those of the view, to the millisecond. Null
// names the columns that are NULL.
type Row struct {
	Scope, Key, Operation, State, Reason, ProviderRef string
	Attempt, Status                                   int64
	Created, Updated, Deadline                        time.Time
	Sealed                                            bool
	Null                                              string
}

// Columns are the columns of the view in the order of its fields.
const Columns = "scope, key, operation, state, reason, provider_ref, attempt, status, created, updated, deadline, sealed"

// nullable returns destinations for Columns, and a function that makes the row of them.
// Times are scanned as the database returns them.
func nullable(at func(any) (time.Time, error)) (dest []any, row func() (Row, error)) {
	var texts [6]*string
	var numbers [2]*int64
	var times [3]any
	var sealed *bool
	for i := range texts {
		dest = append(dest, &texts[i])
	}
	for i := range numbers {
		dest = append(dest, &numbers[i])
	}
	for i := range times {
		dest = append(dest, &times[i])
	}
	dest = append(dest, &sealed)
	return dest, func() (r Row, err error) {
		names := strings.Split(Columns, ", ")
		var null []string
		for i, to := range []*string{&r.Scope, &r.Key, &r.Operation, &r.State, &r.Reason, &r.ProviderRef} {
			if texts[i] == nil {
				null = append(null, names[i])
			} else {
				*to = *texts[i]
			}
		}
		for i, to := range []*int64{&r.Attempt, &r.Status} {
			if numbers[i] == nil {
				null = append(null, names[6+i])
			} else {
				*to = *numbers[i]
			}
		}
		for i, to := range []*time.Time{&r.Created, &r.Updated, &r.Deadline} {
			if times[i] == nil {
				null = append(null, names[8+i])
			} else if *to, err = at(times[i]); err != nil {
				return r, err
			}
		}
		if sealed == nil {
			null = append(null, names[11])
		} else {
			r.Sealed = *sealed
		}
		r.Null = strings.Join(null, " ")
		return r, nil
	}
}

// Read reads rows of the view by their ids: an id in front of Columns.
func Read(rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
}, at func(any) (time.Time, error)) (map[string]Row, error) {
	all := map[string]Row{}
	for rows.Next() {
		var id string
		dest, row := nullable(at)
		if err := rows.Scan(append([]any{&id}, dest...)...); err != nil {
			return nil, err
		}
		r, err := row()
		if err != nil {
			return nil, err
		}
		all[id] = r
	}
	return all, rows.Err()
}

// Want returns the row of a record. UTF8 says that the database refuses texts that are no
// UTF-8, so that the view has them in hexadecimal.
func Want(r *retrysafe.Record, utf8 bool) Row {
	want := Row{
		Scope: text(r.Scope, utf8), Key: text(r.Key, utf8), Operation: operation(r.Operation, utf8), State: r.State.String(),
		Reason: text(r.Reason, utf8), ProviderRef: text(r.ProviderRef, utf8), Attempt: int64(r.Attempt),
		Created: r.CreatedAt, Updated: r.UpdatedAt, Deadline: r.Deadline, Sealed: r.KeyText != nil,
	}
	if r.Result != nil {
		want.Status = int64(r.Result.Status)
	} else {
		want.Null = "status"
	}
	if want.Sealed {
		want.Scope, want.Key = "encrypted", "encrypted"
		if r.Reason != "" {
			want.Reason = "encrypted"
		}
	}
	return want
}

// operation returns an operation as the view shows it. PostgreSQL keeps its method apart.
func operation(s string, utf8 bool) string {
	for _, method := range []string{"POST ", "PUT ", "PATCH ", "DELETE "} {
		if rest, ok := strings.CutPrefix(s, method); ok && utf8 {
			return method + text(rest, utf8)
		}
	}
	return text(s, utf8)
}

func text(s string, valid bool) string {
	bad := func(s string) bool { return strings.Contains(s, "\x00") || valid && !utf8.ValidString(s) }
	switch {
	case !bad(s):
		return s
	case len(s) > 1 && s[0] == 0 && !bad(s[1:]):
		return `\0` + s[1:]
	default:
		return `\x` + hex.EncodeToString([]byte(s))
	}
}

// Compare reports how a row of the view differs from the record in it.
func Compare(t testing.TB, got Row, r *retrysafe.Record, utf8 bool) {
	t.Helper()
	want := Want(r, utf8)
	for _, pair := range []struct {
		name      string
		got, want *time.Time
	}{{"created", &got.Created, &want.Created}, {"updated", &got.Updated, &want.Updated}, {"deadline", &got.Deadline, &want.Deadline}} {
		if d := pair.got.Sub(*pair.want); d < -time.Millisecond || d > time.Millisecond {
			t.Errorf("%q: %s is %v, want %v", r.Ref, pair.name, *pair.got, *pair.want)
		}
		*pair.got, *pair.want = time.Time{}, time.Time{}
	}
	if got != want {
		t.Errorf("%q:\n got %s\nwant %s", r.Ref, short(got), short(want))
	}
}

func short(r Row) string {
	s := fmt.Sprintf("%+q", fmt.Sprintf("%+v", r))
	return s[:min(len(s), 2000)]
}

// Records returns n writes of new keys, in all forms that a record can have.
func Records(random *rand.Rand, n int) []retrysafe.Write {
	all := make([]retrysafe.Write, n)
	for i := range all {
		all[i] = record(random, i)
	}
	return all
}

func record(random *rand.Rand, i int) retrysafe.Write {
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	odd := func() string {
		return pick("", "", "plain", "with spaces", `it's "quoted" \ and \x41`, "Straße ключ 鍵 🔑", "a\x00b", "\x00begins", "\x00", "\x00\x00", "\xff\xfe\x80", "line\r\nline\t\x01", "é\xff",
			strings.Repeat("x", 127), strings.Repeat("y", 128), strings.Repeat("ü", 20_000), "8e03978e-40d5-43dd-bc93-6894a57f9324", "{}")
	}
	number := func() int { return []int{0, 1, 2, -1, 63, 64, -64, -65, 200, 503, 1 << 30, -1 << 40}[random.IntN(12)] }
	maybe := func() []byte {
		switch random.IntN(4) {
		case 0:
			return []byte{}
		case 1:
			return []byte(odd())
		case 2:
			return make([]byte, random.IntN(5000))
		default:
			return nil
		}
	}
	sum := sha256.Sum256([]byte{byte(i), byte(i >> 8)})
	w := retrysafe.Write{Term: time.Duration(1+random.IntN(100)) * time.Hour, Record: retrysafe.Record{
		Ref:         retrysafe.Ref{Scope: odd(), Key: fmt.Sprintf("%d%s", i, odd())},
		Operation:   pick("", "POST ", "PUT ", "PATCH ", "DELETE ", "GET ") + odd(),
		Fingerprint: retrysafe.Fingerprint{Alg: uint8(random.IntN(4)), Sum: sum},
		State:       retrysafe.StateAccepted + retrysafe.State(random.IntN(6)),
		Lapse:       retrysafe.Lapse(random.IntN(6)), Effects: retrysafe.Effects(random.IntN(6)),
		Version: uint8([]int{1, 2, 14, 15, 255}[random.IntN(5)]),
		Owner:   retrysafe.Owner(sum[:16]), Attempt: number(), Retain: time.Duration(random.Int64N(1 << 50)),
		Request: maybe(), ProviderRef: odd(), Reason: odd(),
	}}
	if random.IntN(3) == 0 {
		w.Key = fmt.Sprintf("8e03978e-40d5-43dd-bc93-6894a57f%04x", i)
	}
	if random.IntN(4) == 0 {
		w.KeyText = []byte("sealed")
	}
	if random.IntN(3) == 0 {
		w.Checkpoint = retrysafe.Checkpoint{Phase: odd(), Data: maybe()}
	}
	if random.IntN(3) == 0 {
		w.Inquiry = retrysafe.Inquiry{Tries: random.IntN(500), Dead: random.IntN(2) == 0}
		for range random.IntN(20) {
			w.Inquiry.Notes = append(w.Inquiry.Notes, retrysafe.Note{At: time.UnixMicro(random.Int64N(1 << 50)).UTC(), By: odd(), State: w.State, Text: pick(odd(), "short")})
		}
	}
	if random.IntN(2) == 0 {
		w.Result = &retrysafe.Result{Status: number(), Omitted: random.IntN(2) == 0, Header: map[string][]string{"Content-Type": {odd()}}, Body: maybe()}
	}
	return w
}

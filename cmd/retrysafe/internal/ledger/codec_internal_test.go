package ledger

import (
	"reflect"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

// A row that the database keeps is the row that was read, and bytes that are no row are refused.
func FuzzRowEncoding(f *testing.F) {
	hammer.Add(f, "pay_1", "amount", "1.00", 3)
	hammer.Add(f, "\x1b[2J", "=1", "\xff", -1)
	hammer.Fuzz(f, func(t *testing.T, id, name, text string, line int) {
		e := Entry{ID: id, Line: line, Fields: map[string]string{name: text}}
		if got, err := decodeEntry(id, appendDetails(nil, &e)); err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%+v came back as %+v, %v", e, got, err)
		}
		_, _ = decodeEntry(id, []byte(text)) // it must not panic
	})
}

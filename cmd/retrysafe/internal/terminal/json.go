package terminal

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

// WriteJSON writes v as one line of JSON in which everything is escaped that is not
// printable.
func WriteJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(printable.JSON(b.Bytes()))
	return err
}

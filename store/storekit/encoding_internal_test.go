package storekit

import (
	"slices"
	"testing"

	"github.com/retrysafe/retrysafe"
)

// A number once given to a word is in stored answers, so it stands for that word
// for ever.
func TestWordsKeepTheirNumbers(t *testing.T) {
	t.Parallel()
	first := []string{
		"Content-Type", "Location", "Etag", "Last-Modified", "Cache-Control", "Content-Language", "Content-Location",
		"Content-Encoding", "Content-Disposition", "Link", "Retry-After", "Vary", "X-Request-Id", "Deprecation", "Sunset",
		"application/json", "application/json; charset=utf-8", "application/problem+json", "text/plain; charset=utf-8",
		"text/html; charset=utf-8", "application/xml", "application/octet-stream", "no-store", "no-cache",
	}
	if len(words) > 255 || !slices.Equal(words[:len(first)], first) {
		t.Errorf("words are %q; the list may only grow at its end, up to 255", words)
	}
	res := &retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}, "Etag": {"1", "no-store"}}}
	for i, w := range words {
		if slices.Index(words[:], w) != i {
			t.Errorf("%q is there twice", w)
		}
		res.Header[w] = append(res.Header[w], w)
	}
	if got, err := DecodeResult(AppendResult(nil, res)); err != nil || !got.Equal(res) {
		t.Errorf("DecodeResult = %+v, %v", got, err)
	}
	if _, err := DecodeResult([]byte{0, 0, 1, byte(len(words) + 1), 0, 0}); err == nil {
		t.Error("a word of a newer program is read as something")
	}
}

package httpkey

import (
	"bytes"
	"compress/gzip"
	"slices"
	"testing"
	"time"
)

// Middleware that adds a value to one header of a replay changes no other header.
func TestCopiedHeadersAreApart(t *testing.T) {
	t.Parallel()
	var c copier
	one, several, last := c.one("a"), c.of([]string{"b", "c"}), c.one("d")
	_ = append(append(one, "x"), "y")
	_ = append(several, "z")
	if one[0] != "a" || !slices.Equal(several, []string{"b", "c"}) || last[0] != "d" {
		t.Errorf("they are %v, %v and %v", one, several, last)
	}
}

// An answer that decodes to more than the limit is not decoded, rather than cut off.
func TestDecodedAnswerIsNeverCutOff(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(make([]byte, 5000))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := decode(zipped.Bytes()[:zipped.Len()-4], "gzip", 5000); ok {
		t.Error("an answer whose end is missing is decoded")
	}
	for limit, fits := range map[int64]bool{4998: false, 4999: false, 5000: true, 5001: true} {
		if plain, ok := decode(zipped.Bytes(), "gzip", limit); ok != fits || ok && len(plain) != 5000 {
			t.Errorf("under a limit of %d it is decoded to %d bytes, %v", limit, len(plain), ok)
		}
	}
}

// A client that waits for as long as it is told does not come too early.
func TestRetryAfterIsRoundedUp(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]string{0: "1", time.Second: "1", time.Second + 1: "2", 1500 * time.Millisecond: "2", time.Minute: "60"} {
		if got := seconds(wait); got != want {
			t.Errorf("%v is told as %s", wait, got)
		}
	}
}

// A header that may authenticate the caller is one by any part of its name.
func TestCredentialsByName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Authorization", "Proxy-Authorization", "X-Authentication", "X-Auth-User", "X-Basic-Auth", "Cookie", "X-Csrf-Token",
		"X-Client-Secret", "X-Password", "X-Amz-Credential", "X-Api-Key", "Apikey", "X-Session",
	} {
		if !isCredential(name) {
			t.Errorf("%s is none", name)
		}
	}
}

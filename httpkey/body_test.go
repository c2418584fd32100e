package httpkey_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

func TestW5_ClientThatDiesHalfWayLeavesNoRecord(t *testing.T) {
	t.Parallel()
	for _, head := range []string{"Content-Length: 100\r\n\r\n{\"a\":", "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n"} {
		served := make(chan struct{})
		b := setup(t)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(served)
			b.ServeHTTP(w, r)
		}))
		t.Cleanup(s.Close)
		c := raw(t, s)
		_, err := fmt.Fprintf(c, "POST /payments HTTP/1.1\r\nHost: x\r\nIdempotency-Key: %s\r\n%s", key, head)
		must(t, err)
		must(t, c.CloseWrite())
		<-served
		b.untouched(t)
		enforced, _ := b.found("body-unreadable")
		if enforced != 1 {
			t.Errorf("findings are %+v", b.findings)
		}
		b.post(t, key, `{"a":1}`).ran(t, 1, false) // the key is as good as new
	}
}

func TestW5_ClientThatIsTooSlowLeavesNoRecord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		must(t, http.NewResponseController(w).SetReadDeadline(time.Now())) // its time is up
		b.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	got := talk(t, s, "POST /payments HTTP/1.1\r\nHost: x\r\nIdempotency-Key: "+key+"\r\nContent-Length: 100\r\n\r\n{")
	if len(got) != 1 {
		t.Fatalf("got %+v, want one refusal", got)
	}
	if p := got[0].refused(t, 400, "body-unreadable"); !p.Retryable {
		t.Errorf("the problem is %+v", p)
	}
	b.untouched(t)
}

// A body that breaks off says nothing about an earlier attempt whose body did
// not, so a client must not be sent to another key.
func TestW5_BrokenRetryIsNoReasonForANewKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.post(t, key, `{"a":1}`).ran(t, 1, false)
	p := b.post(t, key, "", func(r *http.Request) {
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"a"`), brokenReader{}))
		r.ContentLength = 7
	}).refused(t, 400, "body-unreadable")
	if p.SafeNewKey {
		t.Error("told that a new key is safe; the first attempt was executed")
	}
	b.post(t, key, `{"a":1}`).ran(t, 1, true)
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestW6_BodyOverTheLimitReservesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.MaxRequest = 100 })
	s := b.serve(t)
	large := `"` + strings.Repeat("x", 99) + `"`
	if p := send(t, s, key, large).refused(t, 413, "body-too-large"); p.Retryable || !strings.Contains(p.Detail, "100 bytes") {
		t.Errorf("the problem is %+v", p)
	}
	chunked := func(r *http.Request) { r.ContentLength, r.Body = -1, io.NopCloser(strings.NewReader(large)) }
	send(t, s, key, "", chunked).refused(t, 413, "body-too-large")
	b.untouched(t)
	send(t, s, key, large[:99]+`"`).ran(t, 1, false) // exactly the limit
}

// A limit that the server sets before the guard is a limit all the same.
func TestW6_OuterLimitIsALimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := httptest.NewServer(http.MaxBytesHandler(b, 10))
	t.Cleanup(s.Close)
	p := send(t, s, key, `{"text":"more than ten bytes"}`).refused(t, 413, "body-too-large")
	if p.Retryable {
		t.Error("told to send the same body again")
	}
	if !strings.Contains(p.Detail, "The limit is 10 bytes.") {
		t.Errorf("told %q", p.Detail)
	}
	b.untouched(t)
}

func zip(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(text)
	must(t, err)
	must(t, w.Close())
	return b.Bytes()
}

func TestW6_EncodedBodiesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, encoding := range []string{"gzip", "GZIP", "br", "zstd", "deflate", "gzip, gzip", "unheard-of"} {
		b.post(t, key, "not really", with("Content-Encoding", encoding)).refused(t, 415, "encoding-unsupported")
	}
	for _, before := range []string{"", "identity", "gzip"} { // a second line hides behind no first one
		lines := func(r *http.Request) { r.Header["Content-Encoding"] = []string{before, "gzip"} }
		b.post(t, key, "not really", lines).refused(t, 415, "encoding-unsupported")
	}
	b.untouched(t)
	b.post(t, key, `{}`, with("Content-Encoding", "identity")).ran(t, 1, false)
	b.post(t, key, `{}`).ran(t, 1, true)
}

func TestW6_GzipIsDecodedForFingerprintAndHandler(t *testing.T) {
	t.Parallel()
	var seen http.Request
	var body string
	b := setup(t, func(c *config) { c.Encoded = httpkey.EncodedDecodeGzip })
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		seen = *r
		text, _ := io.ReadAll(r.Body)
		body = string(text)
		b.created(w, r)
	}))
	zipped := string(zip(t, []byte(`{"b":1,"a":2}`)))
	b.post(t, key, zipped, with("Content-Encoding", "gzip"), with("Content-Length", fmt.Sprint(len(zipped)))).ran(t, 1, false)
	if body != `{"b":1,"a":2}` || seen.Header.Get("Content-Length") != "" || seen.ContentLength != int64(len(body)) || seen.Header.Get("Content-Encoding") != "" {
		t.Errorf("the handler got %q, %d bytes, %v", body, seen.ContentLength, seen.Header)
	}
	again := string(zip(t, []byte(` {"a":2,"b":1}`)))
	b.post(t, key, again, with("Content-Encoding", "GZip")).ran(t, 1, true)
	b.post(t, key, `{"a":2,"b":1}`).ran(t, 1, true)

	b.post(t, other, zipped+"rubbish", with("Content-Encoding", "gzip")).refused(t, 400, "body-unreadable")
	b.post(t, other, "rubbish", with("Content-Encoding", "gzip")).refused(t, 400, "body-unreadable")
	b.post(t, other, zipped[:len(zipped)-3], with("Content-Encoding", "gzip")).refused(t, 400, "body-unreadable")
	b.post(t, other, zipped, with("Content-Encoding", "br")).refused(t, 415, "encoding-unsupported")
	b.post(t, other, zipped, func(r *http.Request) { r.Header["Content-Encoding"] = []string{"gzip", "gzip"} }).
		refused(t, 415, "encoding-unsupported")
	if got := len(b.records(t)); got != 1 {
		t.Errorf("%d records, want the one of the first request", got)
	}
	b.post(t, other, "", with("Content-Encoding", "gzip")).ran(t, 2, false) // no body, nothing to decode
}

func TestW6_GzipBombIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Encoded, c.MaxRequest = httpkey.EncodedDecodeGzip, 64<<20 })
	bomb := string(zip(t, make([]byte, 4<<20))) // 4 MiB in 4 KiB: within the limit, beyond the ratio
	b.post(t, key, bomb, with("Content-Encoding", "gzip")).refused(t, 413, "body-too-large")
	b.untouched(t)
	small := string(zip(t, make([]byte, 60<<10)))
	b.post(t, key, small, with("Content-Encoding", "gzip")).ran(t, 1, false) // small enough at any ratio
}

func TestW7_FramingIsNoPartOfTheRequest(t *testing.T) {
	t.Parallel()
	bodies := make(chan string, 10)
	b := setup(t)
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil || r.TransferEncoding != nil || r.ContentLength != int64(len(text)) {
			t.Errorf("the handler got %q, %v, %v, %d", text, err, r.TransferEncoding, r.ContentLength)
		}
		bodies <- string(text)
		b.created(w, r)
	}))
	s := b.serve(t)
	head := "POST /payments HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nIdempotency-Key: " + key + "\r\n"
	first := talk(t, s, head+"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\nX-Sum: 7\r\n\r\n")
	if len(first) != 1 {
		t.Fatalf("got %+v", first)
	}
	first[0].ran(t, 1, false)
	if got := <-bodies; got != `{"a":1}` {
		t.Errorf("the handler got %q", got)
	}
	send(t, s, key, `{"a":1}`).ran(t, 1, true)
}

func TestW7_KeyInATrailerIsNoKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := talk(t, b.serve(t), "POST /payments HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: Idempotency-Key\r\n\r\n"+
		"2\r\n{}\r\n0\r\nIdempotency-Key: "+key+"\r\n\r\n")
	if len(got) != 1 {
		t.Fatalf("got %+v", got)
	}
	got[0].refused(t, 400, "key-missing")
	b.untouched(t)
}

func TestW7_SyntaxErrorComesBefore100Continue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.serve(t)
	head := "POST /payments HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\nIdempotency-Key: "
	got := talk(t, s, head+"a,b\r\n\r\n") // the body is never sent, and need not be
	if len(got) != 1 {
		t.Fatalf("got %+v", got)
	}
	got[0].refused(t, 400, "key-malformed")
	b.untouched(t)
	got = talk(t, s, head+key+"\r\n\r\n{}")
	if len(got) != 2 || got[0].status != 100 {
		t.Fatalf("got %+v, want 100 and an answer", got)
	}
	got[1].ran(t, 1, false)
}

// Refusing such requests outright is a gateway's business. Here they must not
// run twice, and what the server refuses must leave no record.
func TestW8_AmbiguousFraming(t *testing.T) {
	t.Parallel()
	const body = `{"a":1}`
	for name, c := range map[string]struct {
		head, body string
		runs       int
	}{
		"chunked and a length":       {"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", "7\r\n" + body + "\r\n0\r\n\r\n", 1},
		"two equal lengths":          {"Content-Length: 7\r\nContent-Length: 7\r\n", body, 1},
		"two different lengths":      {"Content-Length: 7\r\nContent-Length: 8\r\n", body, 0},
		"lengths in a list":          {"Content-Length: 7, 7\r\n", body, 0},
		"negative length":            {"Content-Length: -7\r\n", body, 0},
		"unknown transfer encoding":  {"Transfer-Encoding: xchunked\r\n", "7\r\n" + body + "\r\n0\r\n\r\n", 0},
		"chunked twice":              {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "7\r\n" + body + "\r\n0\r\n\r\n", 0},
		"space before the colon":     {"Transfer-Encoding : chunked\r\n", "7\r\n" + body + "\r\n0\r\n\r\n", 0},
		"chunk size with a sign":     {"Transfer-Encoding: chunked\r\n", "+7\r\n" + body + "\r\n0\r\n\r\n", 0},
		"chunk longer than its size": {"Transfer-Encoding: chunked\r\n", "3\r\n" + body + "\r\n0\r\n\r\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.serve(t)
			text := "POST /payments HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nIdempotency-Key: " + key + "\r\n"
			got := talk(t, s, text+"Connection: close\r\n"+c.head+"\r\n"+c.body)
			if len(got) != 1 {
				t.Fatalf("got %d answers, want one: %+v", len(got), got)
			}
			if c.runs == 0 {
				if got[0].status != 400 && got[0].status != 501 {
					t.Errorf("got %d %s, want a refusal", got[0].status, got[0].body)
				}
				b.untouched(t)
				return
			}
			got[0].ran(t, 1, false)
			send(t, s, key, body).ran(t, 1, true) // a plain retry is the same request
			b.ranTimes(t, 1)
		})
	}
}

func TestHandlerMayReadTheBodyAgainAndAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(w http.ResponseWriter, r *http.Request) {
		must(t, r.Body.Close())
		text, err := io.ReadAll(r.Body)
		if err != nil || string(text) != "a=1" || r.PathValue("id") != "7" || r.Pattern != "POST /payments/{id}" {
			t.Errorf("the handler got %q, %v, %q, %q", text, err, r.PathValue("id"), r.Pattern)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	mux := http.NewServeMux()
	mux.Handle("POST /payments/{id}", b.Handler)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, request(t, key, "a=1", to("/payments/7")))
	if w.Code != http.StatusNoContent {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if got := b.state(t).Operation; got != "POST /payments/{id}" {
		t.Errorf("the operation is %q", got)
	}
}

// A ServeMux answers the base path of a subtree with a redirect of its own, whose pattern
// is the subtree's. The guard of the subtree does not get that request.
func TestRedirectOfAMuxIsNoOperationOfItsSubtree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mux := http.NewServeMux()
	mux.Handle("POST /orders/", b.Handler)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, request(t, key, `{}`, to("/orders")))
	if w.Code != http.StatusTemporaryRedirect || w.Header().Get("Location") != "/orders/" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	b.untouched(t)
	w = httptest.NewRecorder()
	mux.ServeHTTP(w, request(t, key, `{}`, to("/orders/")))
	if got := b.state(t).Operation; got != "POST /orders/" {
		t.Errorf("the operation is %q", got)
	}
}

// Outer middleware may put another body in the place of the one that came.
func TestBodyCountsWhateverItsLengthSays(t *testing.T) {
	t.Parallel()
	for _, length := range []int64{-1, 0, 3, 1000} {
		b := setup(t, withHandler(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
		replaced := func(text string) func(*http.Request) {
			return func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), length }
		}
		if got := b.post(t, key, "", replaced(`{"n":1}`)); got.body != `{"n":1}` {
			t.Errorf("with the length %d the handler got %q", length, got.body)
		}
		b.post(t, key, "", replaced(`{"n":2}`)).refused(t, 422, "key-reused")
	}
}

// Also in the transaction form, with a key or without one.
func TestUploadsAreCleanedUp(t *testing.T) {
	t.Parallel()
	names := make(chan string, 1)
	upload := func(_ *bundle, w http.ResponseWriter, r *http.Request, _ *memstore.Tx) error {
		must(t, r.ParseMultipartForm(1))
		f, err := r.MultipartForm.File["file"][0].Open()
		must(t, err)
		names <- f.(*os.File).Name()
		must(t, f.Close())
		w.WriteHeader(http.StatusCreated)
		return nil
	}
	var text bytes.Buffer
	w := multipart.NewWriter(&text)
	part, err := w.CreateFormFile("file", "large.bin")
	must(t, err)
	_, err = part.Write(make([]byte, 100_000))
	must(t, err)
	must(t, w.Close())
	plain := setup(t, withHandler(func(w http.ResponseWriter, r *http.Request) { _ = upload(nil, w, r, nil) }))
	inTx, _ := inForm(t, upload, func(c *config) { c.Optional = true })
	for name, c := range map[string]struct {
		b   *bundle
		key string
	}{"plain": {plain, key}, "transaction form": {inTx, key}, "transaction form, no key": {inTx, ""}} {
		if got := c.b.post(t, c.key, text.String(), with("Content-Type", w.FormDataContentType())); got.status != http.StatusCreated {
			t.Fatalf("%s: got %d %s", name, got.status, got.body)
		}
		if _, err := os.Stat(<-names); !os.IsNotExist(err) {
			t.Errorf("%s: an uploaded file is left behind: %v", name, err)
		}
	}
}

// A body that is announced to be too large is refused before any of it is read.
func TestBodyOverTheLimitIsNotRead(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.MaxRequest = 100 })
	b.post(t, key, "", func(r *http.Request) {
		r.ContentLength, r.Body = 101, io.NopCloser(iotest.ErrReader(errors.New("it was read")))
	}).refused(t, 413, "body-too-large")
	b.ranTimes(t, 0)
}

package httpkey_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
)

func TestReplayIsByteForByte(t *testing.T) {
	t.Parallel()
	binary := make([]byte, 3000)
	_, _ = rand.Read(binary)
	for name, handler := range map[string]http.HandlerFunc{
		"JSON as it was written": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "/payments/1")
			w.WriteHeader(201)
			fmt.Fprint(w, `{"z":1.10,"a":1e2}`)
		},
		"nothing at all": func(http.ResponseWriter, *http.Request) {},
		"empty body":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) },
		"204": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(204)
			if _, err := fmt.Fprint(w, "no room"); err == nil {
				t.Error("a body of a 204 was taken")
			}
		},
		"304":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) },
		"binary":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(binary) },
		"sniffed": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html><body>") },
		"type withheld": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			fmt.Fprint(w, "<html>")
		},
		"several values": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Link"] = []string{"<a>", "<b>"}
			w.WriteHeader(http.StatusOK)
		},
		"redirect":       func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusSeeOther) },
		"business error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no funds", http.StatusPaymentRequired) },
		"unusual status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(299) },
		"io.Copy":        func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, bytes.NewReader(binary)) },
		"io.WriteString": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "text")
			_, _ = io.WriteString(w, " more")
		},
		"wrong length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "999")
			fmt.Fprint(w, "short")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, withHandler(handler), func(c *config) { c.AllowEmpty = name == "nothing at all" })
			s := b.serve(t)
			s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			bare := httptest.NewServer(handler)
			t.Cleanup(bare.Close)
			bare.Client().CheckRedirect = s.Client().CheckRedirect

			first := send(t, s, key, `{}`)
			again := send(t, s, key, `{}`)
			again.same(t, first)
			if again.header.Get("Idempotent-Replayed") != "true" || first.header.Get("Idempotent-Replayed") != "" {
				t.Errorf("the marker is %q, then %q", first.header.Get("Idempotent-Replayed"), again.header.Get("Idempotent-Replayed"))
			}
			if first.header.Get("Idempotency-Expires") == "" {
				t.Error("the first answer does not say when it is forgotten")
			}
			for name := range first.header {
				if got, want := again.header[name], first.header[name]; name != "Date" && strings.Join(got, "|") != strings.Join(want, "|") {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			b.ranTimes(t, 1)
			if name == "wrong length" || name == "204" {
				return // the bare server fails here
			}
			plain := send(t, bare, key, `{}`)
			if first.status != plain.status || first.body != plain.body || first.header.Get("Content-Type") != plain.header.Get("Content-Type") ||
				first.header.Get("Location") != plain.header.Get("Location") {
				t.Errorf("got %d %v %.40q, without a guard %d %v %.40q", first.status, first.header, first.body, plain.status, plain.header, plain.body)
			}
		})
	}
}

// The date of the header is that of Greenwich, whatever zone the store's times are in.
func TestExpiryIsToldInGMT(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("somewhere", 5*60*60)
	b := setup(t, func(c *config) {
		c.store.Now = func() time.Time { return time.Now().In(zone) }
	})
	until, err := http.ParseTime(b.post(t, key, `{}`).header.Get("Idempotency-Expires"))
	retain := b.engine.Policy().Retention
	if left := time.Until(until); err != nil || left < retain-time.Hour || left > retain {
		t.Errorf("the answer is kept until %v, %v: for %v", until, err, left)
	}
}

func TestW42_NothingIsShownBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
			b.created(w, r)
		}))
		got := b.post(t, key, `{}`)
		p := got.refused(t, 503, "outcome-pending")
		if !p.Retryable || p.SafeNewKey || got.header.Get("Retry-After") == "" || got.header.Get("Location") != "" || strings.Contains(got.body, "run") {
			t.Errorf("got %v %s", got.header, got.body)
		}
		if !strings.Contains(b.log.String(), "its answer is not stored yet") || !strings.Contains(b.log.String(), retrysafe.HashKey(strings.Trim(key, `"`))) {
			t.Errorf("the log does not name the key whose answer is not stored: %s", b.log)
		}
		b.post(t, key, `{}`).refused(t, 503, "store-unavailable")
		b.fault.Plan(nil)
		must(t, b.engine.Drain(t.Context()))
		b.post(t, key, `{}`).ran(t, 1, true)
		b.ranTimes(t, 1)
	})
}

// An attempt that was in flight when its store was moved is recorded in neither store: its
// client is not told that the answer will be there.
func TestAnswerInAMovedStoreIsNotPromised(t *testing.T) {
	t.Parallel()
	for effects, want := range map[retrysafe.Effects]struct {
		status int
		code   string
	}{
		retrysafe.EffectsUnprotected: {409, "outcome-unknown"},
		retrysafe.EffectsKeyed:       {500, "attempt-failed"}, // the record lapses at the other store, and the key runs again
	} {
		t.Run(effects.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, withPolicy(retrysafe.Policy{Effects: effects}))
				b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
					b.fault.Plan(faultstore.FailAll(faultstore.Moved))
					b.created(w, r)
				}))
				got := b.post(t, key, `{}`)
				p := got.refused(t, want.status, want.code)
				if !p.Retryable || p.SafeNewKey || got.header.Get("Retry-After") == "" {
					t.Errorf("got %v %s", got.header, got.body)
				}
				if !strings.Contains(b.log.String(), "its answer is not stored yet") || !strings.Contains(b.log.String(), "this store was moved to elsewhere") {
					t.Errorf("the log does not say why the answer is not stored: %s", b.log)
				}
				b.post(t, key, `{}`).refused(t, 503, "store-unavailable")
				b.ranTimes(t, 1)
			})
		})
	}
}

// A store that is away for a moment costs time and nothing else.
func TestW42_CompletionIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
			b.fault.Plan(func(s faultstore.Step) faultstore.Fault {
				if s.Op == faultstore.Swap && s.N <= 4 {
					return faultstore.LoseRequest
				}
				return faultstore.None
			})
			b.created(w, r)
		}))
		start := time.Now()
		b.post(t, key, `{}`).ran(t, 1, false)
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
		b.post(t, key, `{}`).ran(t, 1, true)
	})
}

func TestW43_CompletionWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.fault.Plan(faultstore.FailOnce(faultstore.Swap, 1, faultstore.LoseReply))
		b.post(t, key, `{}`).ran(t, 1, false)
		b.post(t, key, `{}`).ran(t, 1, true)
		if got := b.state(t).State; got != retrysafe.StateCompleted {
			t.Errorf("the record is %s", got)
		}
	})
}

func TestW45_ConnectionResetWhileTheAnswerIsWritten(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("0123456789abcdef", 1<<18) // 4 MiB: no socket buffer holds it
	finished := make(chan struct{}, 2)
	b := setup(t, func(c *config) { c.MaxResponse = 8 << 20 }, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		_, _ = io.WriteString(w, text)
	}))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { finished <- struct{}{} }()
		b.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	c := raw(t, s)
	_, err := io.WriteString(c, "POST /payments HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nIdempotency-Key: "+key+"\r\nContent-Length: 2\r\n\r\n{}")
	must(t, err)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	if _, err := io.ReadFull(res.Body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	must(t, c.SetLinger(0))
	must(t, c.Close()) // a reset
	<-finished
	got := send(t, s, key, `{}`)
	if got.status != 201 || got.body != text || got.header.Get("Idempotent-Replayed") != "true" || got.header.Get("Content-Length") != fmt.Sprint(len(text)) {
		t.Errorf("got %d, %d bytes, %v", got.status, len(got.body), got.header)
	}
	b.ranTimes(t, 1)
}

// Go's own client sends a request with a key again, without a word, when a kept
// connection dies under it. Here that must be one run.
func TestW51_HiddenResendRunsOnce(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int32
	b := setup(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") == key && arrived.Add(1) == 1 {
			b.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // executed, and the connection dies before a byte is sent
		}
		b.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	send(t, s, other, `{}`).ran(t, 1, false) // now there is a connection to be reused
	send(t, s, key, `{}`).ran(t, 2, true)
	if got := arrived.Load(); got != 2 {
		t.Errorf("the request arrived %d times; this test wants the hidden resend", got)
	}
	b.ranTimes(t, 2)
}

// W52 and the failure policies: what each status leaves behind.
func TestW52_WhatAStatusMeans(t *testing.T) {
	t.Parallel()
	const stored, again, unknown = "stored", "again", "unknown"
	cases := []struct {
		policy   retrysafe.Policy
		statuses []int
		want     string
	}{
		{retrysafe.Policy{}, []int{200, 201, 302, 400, 402, 404, 409, 410, 412, 418, 422}, stored},
		{retrysafe.Policy{}, []int{401, 403, 408, 425, 429}, again},
		{retrysafe.Policy{}, []int{500, 501, 502, 503, 504, 599}, unknown},
		{retrysafe.Policy{Effects: retrysafe.EffectsKeyed}, []int{500, 502, 503, 504}, again},
		{retrysafe.Policy{Effects: retrysafe.EffectsInTx}, []int{500, 502, 503, 504}, unknown}, // no transaction was seen
		{retrysafe.Policy{Effects: retrysafe.EffectsInTx}, []int{400, 402, 404, 422}, stored},
		{retrysafe.Policy{OnFailure: retrysafe.FailureStore}, []int{500, 501, 503}, stored},
		{retrysafe.Policy{OnFailure: retrysafe.FailureStore}, []int{502, 504}, unknown},
		{retrysafe.Policy{OnFailure: retrysafe.FailureStore}, []int{401, 403, 408, 425, 429}, again},
		{retrysafe.Policy{OnFailure: retrysafe.FailureRetry}, []int{500, 503}, again},
		{retrysafe.Policy{OnFailure: retrysafe.FailureRetry}, []int{502, 504}, unknown},
	}
	for _, c := range cases {
		for _, status := range c.statuses {
			b := setup(t, withPolicy(c.policy), withHandler(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				fmt.Fprint(w, "said")
			}))
			first := b.post(t, key, `{}`)
			if first.status != status || first.body != "said" {
				t.Errorf("%d: the first client got %d %s", status, first.status, first.body)
			}
			switch second := b.post(t, key, `{}`); c.want {
			case stored:
				second.same(t, first)
				b.ranTimes(t, 1)
			case again:
				b.ranTimes(t, 2)
			default:
				second.refused(t, 409, "outcome-unknown")
				b.ranTimes(t, 1)
				if first.header.Get("Idempotency-Expires") != "" {
					t.Errorf("%d: an unknown outcome expires %s", status, first.header.Get("Idempotency-Expires"))
				}
			}
		}
	}
}

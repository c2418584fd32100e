package tenant_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
)

func edSigner(id string) signer {
	return signer{id: id, method: jwt.SigningMethodEdDSA, private: newEd()}
}

// expect asks for the tenant of a token.
func expect(t *testing.T, j *tenant.JWT, what, token string, want error) {
	t.Helper()
	got, err := j.Tenant(bearing(token))
	if !errors.Is(err, want) || (err == nil) != (got == "jwt:acme") {
		t.Errorf("%s: got %q, %v; want %v", what, got, err, want)
	}
}

func (is *issuer) read(t *testing.T, what string, want int64) {
	t.Helper()
	if n := is.hits.Load(); n != want {
		t.Errorf("%s: the keys were read %d times, want %d", what, n, want)
	}
}

func TestNewKeyIsFoundWhenATokenNeedsIt(t *testing.T) {
	t.Parallel()
	is, clock, log := newIssuer(t), newClock(), new(logbook)
	j := is.jwt(t, logTo(log))
	j.SetNow(clock.now)
	old, next, last := edSigner("1"), edSigner("2"), edSigner("3")
	is.publish(old)
	is.read(t, "after the constructor", 0)
	expect(t, j, "the first token", is.token(t), nil)
	expect(t, j, "another one", is.token(t, with("jti", "2")), nil)
	is.read(t, "with one key", 1)

	is.publish(old, next)
	expect(t, j, "a token of the next key, too soon", is.token(t, by(next)), tenant.ErrInvalid)
	is.read(t, "so soon", 1)
	clock.pass(tenant.AskPause)
	expect(t, j, "a token of the next key", is.token(t, by(next)), nil)
	expect(t, j, "a token of the old one", is.token(t, by(old)), nil)
	is.read(t, "after the first rotation", 2)

	is.publish(next, last)
	clock.pass(tenant.AskPause)
	expect(t, j, "a token of the last key", is.token(t, by(last)), nil)
	expect(t, j, "a token of a key that is published no more", is.token(t, by(old)), tenant.ErrInvalid)
	is.read(t, "after the second rotation", 3)
	if n := strings.Count(log.String(), "the issuer has new keys"); n != 3 {
		t.Errorf("the log speaks of new keys %d times:\n%s", n, log)
	}
}

// Tokens with made-up key ids make us fetch the issuer's keys, at a bounded rate.
func TestMadeUpKeysAreABoundedNuisance(t *testing.T) {
	t.Parallel()
	is, clock := newIssuer(t), newClock()
	j := is.jwt(t)
	j.SetNow(clock.now)
	mallory := edSigner("x")
	for i := range 50 {
		mallory.id = fmt.Sprint("made up ", i)
		expect(t, j, mallory.id, is.token(t, by(mallory)), tenant.ErrInvalid)
		clock.pass(time.Second)
	}
	is.read(t, "in 50 seconds", 5)
	expect(t, j, "others", is.token(t), nil)
}

func TestRequestsShareOneReading(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	synctest.Test(t, func(t *testing.T) { // in real time requests might wait for too long
		entered, leave := make(chan struct{}), make(chan struct{})
		is.answerWith(func(w http.ResponseWriter, _ *http.Request) {
			close(entered) // a second one panics
			<-leave
			_, _ = w.Write(is.keySet())
		})
		j := is.jwt(t)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() { expect(t, j, "one of many", is.token(t, with("jti", fmt.Sprint(i))), nil) })
		}
		<-entered
		close(leave)
		wg.Wait()
	})
	is.read(t, "for all of them", 1)
}

// One request fetches the keys for all: that its client hangs up does not end the
// fetch.
func TestReadingOutlivesItsClient(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	ctx, hangUp := context.WithCancel(t.Context())
	is.answerWith(func(w http.ResponseWriter, _ *http.Request) {
		hangUp()
		_, _ = w.Write(is.keySet())
	})
	j := is.jwt(t)
	if got, err := j.Tenant(bearing(is.token(t)).WithContext(ctx)); got != "jwt:acme" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	expect(t, j, "the next one", is.token(t), nil)
	is.read(t, "for both", 1)
}

// An issuer that hangs holds up requests for two seconds, and no token that a known
// key fits. In the bubble all of this takes no time.
func TestRequestsDoNotWaitForASlowIssuer(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	keys, stranger := is.keySet(), edSigner("stranger")
	clock := newClock()
	known, unknown := is.token(t), is.token(t, by(stranger))
	synctest.Test(t, func(t *testing.T) {
		hanging := false
		j := is.jwt(t, func(o *tenant.Options) {
			o.Transport = transport(func(r *http.Request) (*http.Response, error) {
				if hanging {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				answer := httptest.NewRecorder()
				_, _ = answer.Write(keys)
				return answer.Result(), nil
			})
		})
		j.SetNow(clock.now) // the bubble is in another year
		must(t, j.RunOnce(t.Context()))
		hanging = true
		waited := func(ctx context.Context, what, token string, want error, limit time.Duration) {
			start := time.Now()
			_, err := j.Tenant(bearing(token).WithContext(ctx))
			if took := time.Since(start); !errors.Is(err, want) || took > limit {
				t.Errorf("%s: %v after %v", what, err, took)
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() { waited(t.Context(), "the first request", unknown, tenant.ErrUnavailable, tenant.MaxWaiting) })
		synctest.Wait()
		wg.Go(func() { waited(t.Context(), "a second request", unknown, tenant.ErrUnavailable, tenant.MaxWaiting) })
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wg.Go(func() { waited(short, "a request that hangs up", unknown, tenant.ErrUnavailable, time.Second) })
		waited(t.Context(), "a known key", known, nil, 0)
		wg.Wait()
		waited(t.Context(), "a later request", unknown, tenant.ErrUnavailable, 0)

		running, stop := context.WithCancel(t.Context())
		wg.Go(func() { _ = j.Run(running) })
		synctest.Wait()
		waited(t.Context(), "a request that joins Run", unknown, tenant.ErrUnavailable, tenant.MaxWaiting)
		stop()
		wg.Wait()

		start := time.Now()
		if err := j.RunOnce(t.Context()); err == nil || time.Since(start) > tenant.MaxReading {
			t.Errorf("the issuer is given up with %v after %v", err, time.Since(start))
		}
	})
}

// A request that has waited for the fetch of another one learns that it failed: its key
// may be a new one, and the token good.
func TestAFailedReadingFailsForAllThatWait(t *testing.T) {
	t.Parallel()
	is, clock := newIssuer(t), newClock()
	keys, unknown := is.keySet(), is.token(t, by(edSigner("next")))
	var closed atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		status := http.StatusOK
		j := is.jwt(t, func(o *tenant.Options) {
			o.Transport = transport(func(*http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				answer := httptest.NewRecorder()
				answer.WriteHeader(status)
				_, _ = answer.Write(keys)
				response := answer.Result()
				response.Body = closing{response.Body, &closed}
				return response, nil
			})
		})
		j.SetNow(clock.now)
		must(t, j.RunOnce(t.Context()))
		status = http.StatusBadGateway
		var wg sync.WaitGroup
		for _, what := range []string{"the request that asks", "one that waits"} {
			wg.Go(func() { expect(t, j, what, unknown, tenant.ErrUnavailable) })
			synctest.Wait()
		}
		wg.Wait()
	})
	if n := closed.Load(); n != 2 {
		t.Errorf("%d of 2 bodies of the issuer's answers are closed", n)
	}
}

// A closing body counts that it was closed.
type closing struct {
	io.ReadCloser
	closed *atomic.Int64
}

func (c closing) Close() error {
	c.closed.Add(1)
	return c.ReadCloser.Close()
}

// W77: keys that were taken back while a token was verified with them do not stay with it.
func TestW77_KeyThatIsTakenBackWhileATokenIsVerified(t *testing.T) {
	t.Parallel()
	is, clock := newIssuer(t), newClock()
	j := is.jwt(t)
	stolen := is.token(t, at(clock))
	must(t, j.RunOnce(t.Context()))
	asked := 0
	j.SetNow(func() time.Time {
		if asked++; asked == 2 { // by the parser, which has its keys
			is.publish(edSigner("2"))
			must(t, j.RunOnce(t.Context()))
		}
		return clock.now()
	})
	expect(t, j, "while the key is taken back", stolen, nil)
	if asked < 2 {
		t.Fatal("the key was not taken back")
	}
	expect(t, j, "after that", stolen, tenant.ErrInvalid)
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What an issuer answers while it is broken takes nothing away, and is logged.
func TestKeysStayWhenTheyCannotBeRead(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect was followed")
	}))
	t.Cleanup(elsewhere.Close)
	say := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	many := `{"keys":[` + strings.Repeat(`{"kty":"OKP","crv":"Ed25519","x":"`+strings.Repeat("A", 43)+`"},`, 65)
	for name, answer := range map[string]http.HandlerFunc{
		"an error":         say(500, `{"keys":[]}`),
		"nothing":          say(204, ``),
		"no longer there":  say(404, `{"keys":[]}`),
		"not ready yet":    say(202, `{"keys":[]}`),
		"a login page":     say(200, `<!doctype html>`),
		"an empty answer":  say(200, ``),
		"an object":        say(200, `{}`),
		"null":             say(200, `{"keys":null}`),
		"no list":          say(200, `{"keys":{}}`),
		"half of it":       say(200, `{"keys":[`),
		"too many keys":    say(200, strings.TrimSuffix(many, ",")+`]}`),
		"too many bytes":   say(200, `{"keys":[]}`+strings.Repeat(" ", tenant.MaxKeySet)),
		"a redirect":       func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) },
		"a cut connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a cut body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"keys":[]}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := newIssuer(t)
			is.url += "?key=secret"
			synctest.Test(t, func(t *testing.T) { // no time passes while the network is waited for
				clock, log := newClock(), new(logbook)
				j := is.jwt(t, logTo(log), overTheNetwork)
				j.SetNow(clock.now)
				stranger := edSigner("stranger")
				is.answerWith(answer)
				expect(t, j, "before there were keys", is.token(t), tenant.ErrUnavailable)
				if err := j.Ready(); !errors.Is(err, tenant.ErrUnavailable) {
					t.Errorf("ready = %v before there were keys", err)
				}
				is.answerWith(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.RawQuery != "key=secret" {
						t.Errorf("the keys are asked for with the query %q", r.URL.RawQuery)
					}
					_, _ = w.Write(is.keySet())
				})
				must(t, j.RunOnce(t.Context()))
				must(t, j.Ready())
				expect(t, j, "with keys", is.token(t), nil)

				is.answerWith(answer)
				if err := j.RunOnce(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
					t.Errorf("RunOnce = %v", err)
				}
				clock.pass(tenant.AskPause)
				expect(t, j, "a key that may be new", is.token(t, by(stranger)), tenant.ErrUnavailable)
				expect(t, j, "and again, without asking", is.token(t, by(stranger)), tenant.ErrUnavailable)
				expect(t, j, "a token that is remembered", is.token(t), nil)
				expect(t, j, "a token that is not", is.token(t, with("jti", "2")), nil)
				must(t, j.Ready())

				is.answerWith(nil)
				clock.pass(tenant.AskPause)
				expect(t, j, "a key that is not new after all", is.token(t, by(stranger)), tenant.ErrInvalid)
				expect(t, j, "and again, when the keys are up to date", is.token(t, by(stranger)), tenant.ErrInvalid)
				for _, want := range []string{"no token can be accepted", "those of before stay in use"} {
					if !strings.Contains(log.String(), want) {
						t.Errorf("the log does not say %q:\n%s", want, log)
					}
				}
				if strings.Contains(log.String(), "secret") {
					t.Errorf("the log shows a secret:\n%s", log)
				}
			})
		})
	}
}

// W76, W77: a token whose key was taken back opens nothing any more as soon as that
// is known, also if it was verified just before.
func TestW77_KeyThatWasTakenBack(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	j := is.jwt(t)
	stolen := is.token(t)
	expect(t, j, "before", stolen, nil)
	must(t, j.RunOnce(t.Context()))
	expect(t, j, "with the same keys", stolen, nil)
	is.publish(edSigner("2"))
	must(t, j.RunOnce(t.Context()))
	expect(t, j, "after", stolen, tenant.ErrInvalid)
	last := is.token(t)
	expect(t, j, "one of the new key", last, nil)
	is.publish() // an issuer without keys has taken back all
	must(t, j.RunOnce(t.Context()))
	expect(t, j, "after that", stolen, tenant.ErrInvalid)
	expect(t, j, "one of the last key", last, tenant.ErrInvalid)
}

// W76: a token that has expired opens nothing, however often it was seen before.
func TestW76_TokenExpiresAlsoWhenItIsRemembered(t *testing.T) {
	t.Parallel()
	is, clock := newIssuer(t), newClock()
	j := is.jwt(t)
	j.SetNow(clock.now)
	brief := is.token(t, at(clock), with("exp", clock.now().Add(20*time.Second).Unix()))
	expect(t, j, "fresh", brief, nil)
	expect(t, j, "remembered", brief, nil)
	clock.pass(20 * time.Second)
	expect(t, j, "expired", brief, tenant.ErrExpired)
	expect(t, j, "expired, again", brief, tenant.ErrExpired)
}

func TestKeysFromAFile(t *testing.T) {
	t.Parallel()
	is, clock := newIssuer(t), newClock()
	file := filepath.Join(t.TempDir(), "jwks.json")
	j := is.jwt(t, func(o *tenant.Options) { o.JWKS = file })
	j.SetNow(clock.now)
	expect(t, j, "without a file", is.token(t), tenant.ErrUnavailable)
	must(t, os.WriteFile(file, is.keySet(), 0o600))
	clock.pass(tenant.AskPause)
	expect(t, j, "with one", is.token(t), nil)
	for _, broken := range []struct {
		what  string
		spoil func() error
	}{
		{"too long", func() error { return os.WriteFile(file, bytes.Repeat([]byte(" "), tenant.MaxKeySet+1), 0o600) }},
		{"gone", func() error { return os.Remove(file) }},
		{"a folder", func() error { return os.Mkdir(file, 0o700) }},
		{"a device", func() error { return errors.Join(os.Remove(file), os.Symlink(os.DevNull, file)) }},
	} {
		must(t, broken.spoil())
		err := j.RunOnce(t.Context())
		if err == nil {
			t.Errorf("%s: no error", broken.what)
		}
		if broken.what == "a device" && !strings.Contains(err.Error(), "it is not a file") { // a pipe could hold up the reader for ever
			t.Errorf("%s: it is opened: %v", broken.what, err)
		}
		expect(t, j, broken.what, is.token(t), nil)
	}
	is.read(t, "from the file", 0)
}

// Run reads at once, then in its rhythm, goes on after failures, and ends with its
// context.
func TestRun(t *testing.T) {
	t.Parallel()
	is, log := newIssuer(t), new(logbook)
	file := filepath.Join(t.TempDir(), "jwks.json")
	next := edSigner("2")
	synctest.Test(t, func(t *testing.T) {
		j := is.jwt(t, logTo(log), func(o *tenant.Options) { o.JWKS = "file://" + file })
		clock := newClock()
		j.SetNow(clock.now) // it stands still: no token is a reason to read twice
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- j.Run(ctx) }()
		synctest.Wait()
		expect(t, j, "without a file", is.token(t, at(clock)), tenant.ErrUnavailable)
		must(t, os.WriteFile(file, is.keySet(), 0o600))
		time.Sleep(15 * time.Second)
		expect(t, j, "with a file", is.token(t, at(clock)), nil)
		is.publish(next)
		must(t, os.WriteFile(file, is.keySet(), 0o600))
		time.Sleep(15 * time.Second)
		expect(t, j, "with another file", is.token(t, at(clock)), nil)
		must(t, os.Remove(file))
		time.Sleep(time.Hour)
		expect(t, j, "with the file gone", is.token(t, at(clock)), nil)
		select {
		case err := <-ended:
			t.Fatalf("Run ended with %v", err)
		default:
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// Run that is stopped while it reads ends at once, and that is no failure.
func TestRunStopsWhileItReads(t *testing.T) {
	t.Parallel()
	is, log := newIssuer(t), new(logbook)
	j := is.jwt(t, logTo(log))
	j.SetNow(newClock().now) // it stands still: no token is a reason to read twice
	expect(t, j, "a token", is.token(t), nil)
	before := log.String()
	entered := make(chan struct{})
	is.answerWith(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	<-entered
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
	if log.String() != before {
		t.Errorf("the log says %s", log)
	}
	expect(t, j, "a key that the issuer does not have", is.token(t, by(edSigner("stranger"))), tenant.ErrInvalid)
}

// RunOnce takes its turn after a reading that a token was the reason for, and
// gives up with its context. Run reads as often as it is told to.
func TestRunTakesItsTurn(t *testing.T) {
	t.Parallel()
	is, log := newIssuer(t), new(logbook)
	keys, token, clock := is.keySet(), is.token(t), newClock()
	synctest.Test(t, func(t *testing.T) {
		var visits int // only one at a time
		status := http.StatusOK
		j := is.jwt(t, logTo(log), func(o *tenant.Options) {
			o.Refresh = time.Minute
			o.Transport = transport(func(*http.Request) (*http.Response, error) {
				visits++
				time.Sleep(time.Second)
				answer := httptest.NewRecorder()
				answer.WriteHeader(status)
				_, _ = answer.Write(keys)
				return answer.Result(), nil
			})
		})
		j.SetNow(clock.now)
		var wg sync.WaitGroup
		wg.Go(func() { expect(t, j, "a token", token, nil) })
		synctest.Wait()
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := j.RunOnce(brief); !errors.Is(err, context.DeadlineExceeded) || visits != 1 {
			t.Errorf("RunOnce = %v after %d visits", err, visits)
		}
		must(t, j.RunOnce(t.Context()))
		wg.Wait()
		if visits != 2 {
			t.Errorf("%d visits, one for the token and one for RunOnce are 2", visits)
		}
		hour, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		must(t, j.Run(hour))
		if visits < 2+45 || visits > 2+80 {
			t.Errorf("%d visits in an hour of minutes", visits-2)
		}
		if n := strings.Count(log.String(), "the issuer has new keys"); n != 1 {
			t.Errorf("the log speaks of new keys %d times, and they were always the same", n)
		}
		visits, status = 0, http.StatusBadGateway
		minutes, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		must(t, j.Run(minutes))
		if visits < 40 || visits > 80 {
			t.Errorf("%d visits in ten minutes without an answer", visits)
		}
	})
}

// The default transport leaves no connection behind when keys are not needed again.
func TestNoConnectionIsKept(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	is.answerWith(func(w http.ResponseWriter, r *http.Request) {
		if !r.Close {
			t.Error("the connection is to be kept")
		}
		_, _ = w.Write(is.keySet())
	})
	must(t, is.jwt(t, overTheNetwork).RunOnce(t.Context()))
}

// Over TLS, with the issuer's certificate checked.
func TestKeysOverTLS(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	server := httptest.NewUnstartedServer(is)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	is.url = server.URL
	expect(t, is.jwt(t, overTheNetwork), "an issuer with an unknown certificate", is.token(t), tenant.ErrUnavailable)
	known := is.jwt(t, func(o *tenant.Options) { o.Transport = server.Client().Transport })
	must(t, known.RunOnce(t.Context()))
	expect(t, known, "one that is known", is.token(t), nil)
}

// An operator reads in the log where the keys come from, which of them is of no use, and when
// none is left; a secret in the address is not there.
func TestLogSaysWhatIsWrongWithKeys(t *testing.T) {
	t.Parallel()
	var log logbook
	is := newIssuer(t)
	j := is.jwt(t, logTo(&log), func(o *tenant.Options) { o.JWKS += "?token=hidden" })
	for _, c := range []struct{ answer, line string }{
		{`{"keys": [{"kty": "oct", "kid": "shared", "k": "AAAA"}]}`, `level=ERROR msg="retrysafe: the issuer has new keys" jwks=` + is.url + " keys=0\n"},
		{string(is.keySet()), `level=INFO msg="retrysafe: the issuer has new keys" jwks=` + is.url + " keys=1\n"},
		{"nothing", `level=ERROR msg="retrysafe: the issuer's keys cannot be read, those of before stay in use" jwks=` + is.url + " error="},
	} {
		is.answerWith(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept"); got != "application/jwk-set+json, application/json" || r.URL.RawQuery != "token=hidden" {
				t.Errorf("the keys are asked for with %v and %q", r.Header, r.URL.RawQuery)
			}
			_, _ = io.WriteString(w, c.answer)
		})
		if err := j.RunOnce(t.Context()); (err != nil) != (c.answer == "nothing") {
			t.Error(err)
		}
		if text := log.String(); !strings.Contains(text, c.line) {
			t.Errorf("the log has no %s:\n%s", c.line, text)
		}
	}
	text := log.String()
	if want := `level=WARN msg="retrysafe: a key of the issuer is left out" jwks=` + is.url + ` reason="key 0: it is a shared secret`; !strings.Contains(text, want) {
		t.Errorf("the log has no %s:\n%s", want, text)
	}
	if strings.Contains(text, "hidden") {
		t.Errorf("the log tells the secret:\n%s", text)
	}
}

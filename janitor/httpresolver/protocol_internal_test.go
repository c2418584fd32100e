package httpresolver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/hammer"
	"github.com/retrysafe/retrysafe/internal/test/pages"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// The questions and replies that the documentation shows are those of the code.
func TestDocsHaveTheResolversProtocol(t *testing.T) {
	t.Parallel()
	doc := []byte(pages.Read(t, "docs/recovery.md"))
	questions, verdicts := 0, 0
	for _, block := range regexp.MustCompile("(?ms)^```json\n(.*?)^```$").FindAllSubmatch(doc, -1) {
		if bytes.Contains(block[1], []byte(`"verdict"`)) {
			verdicts++
			if _, err := parseVerdict(block[1]); err != nil {
				t.Errorf("%v\n%s", err, block[1])
			}
			continue
		}
		questions++
		var q question
		d := json.NewDecoder(bytes.NewReader(block[1]))
		d.DisallowUnknownFields()
		if err := d.Decode(&q); err != nil {
			t.Errorf("%v\n%s", err, block[1])
		}
		var shown, real map[string]any
		all, _ := json.Marshal((&names{opts: &Options{}, rec: &retrysafe.Record{Ref: retrysafe.Ref{Scope: "s", Key: "k"}, Operation: "o", ProviderRef: "p", Reason: "r"}}).question())
		if json.Unmarshal(block[1], &shown) != nil || json.Unmarshal(all, &real) != nil || len(shown) != len(real) {
			t.Errorf("the question has the members %v, and the page %v", real, shown)
		}
		if q.KeyHash != retrysafe.HashKey(q.Key) {
			t.Errorf("the hash of the key is %s", retrysafe.HashKey(q.Key))
		}
	}
	if questions != 1 || verdicts < 2 {
		t.Errorf("there are %d questions and %d verdicts on the page", questions, verdicts)
	}
}

// After a crash in the middle of one call of several, the question has that call's key.
func TestResolverNamesTheOpenCall(t *testing.T) {
	t.Parallel()
	rec := retrysafe.Record{Ref: retrysafe.Ref{Scope: "s", Key: "k"}}
	n := &names{opts: &Options{Namespace: "n", Call: "upstream"}, rec: &rec}
	if got, want := n.question().DownstreamKey, retrysafe.DownstreamKey("n", rec.Ref, "upstream"); got != want {
		t.Errorf("the key is %s, want %s", got, want)
	}
	store := memstore.New(nil)
	engine, err := retrysafe.New(store, &retrysafe.Options{Namespace: "n"})
	if err != nil {
		t.Fatal(err)
	}
	var sent string
	_, _ = engine.Do(t.Context(), retrysafe.Call{Ref: rec.Ref, Fingerprint: retrysafe.Fingerprint{Alg: 1}}, func(ctx context.Context, _ *retrysafe.Execution) (retrysafe.Result, error) {
		_, err := retrysafe.Effect(ctx, "charge", nil, func(_ context.Context, a retrysafe.Attempt) (int, error) {
			sent = a.Key
			return 0, errors.New("the line was cut")
		})
		return retrysafe.Result{}, err
	})
	if rec, err = store.Load(t.Context(), rec.Ref); err != nil || rec.State != retrysafe.StateUnknown {
		t.Fatalf("the outcome is %s, %v", rec.State, err)
	}
	if got := n.question().DownstreamKey; got != sent {
		t.Errorf("the key is %s, and the provider was sent %s", got, sent)
	}
	// A call that has ended is not the one in doubt.
	rec.Ref.Key = "k2"
	_, _ = engine.Do(t.Context(), retrysafe.Call{Ref: rec.Ref, Fingerprint: retrysafe.Fingerprint{Alg: 1}}, func(ctx context.Context, _ *retrysafe.Execution) (retrysafe.Result, error) {
		_, err := retrysafe.Effect(ctx, "charge", nil, func(context.Context, retrysafe.Attempt) (int, error) { return 1, nil })
		return retrysafe.Result{}, errors.Join(err, errors.New("the line was cut"))
	})
	if rec, err = store.Load(t.Context(), rec.Ref); err != nil {
		t.Fatal(err)
	}
	if steps, _ := rec.Checkpoint.Steps(); len(steps) != 1 || steps[0].Open {
		t.Fatalf("the steps are %+v", steps)
	}
	if got, want := n.question().DownstreamKey, retrysafe.DownstreamKey("n", rec.Ref, "upstream"); got != want {
		t.Errorf("the key is %s, want %s", got, want)
	}
}

// A verdict means what it says, with the answer and the provider's name that it has.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]retrysafe.Evidence{
		`{"verdict":"happened","provider_ref":"ch_1","answer":{"status":200,"body":"b"}}`: {Finding: retrysafe.FindingHappened, ProviderRef: "ch_1", Result: retrysafe.Result{Status: 200, Body: []byte("b")}},
		`{"verdict":"declined","answer":{"status":599,"body_base64":"AP8="}}`:             {Finding: retrysafe.FindingDeclined, Result: retrysafe.Result{Status: 599, Body: []byte{0, 0xff}}},
		`{"verdict":"not_happened","provider_ref":"none"}`:                                {Finding: retrysafe.FindingNotHappened, ProviderRef: "none"},
		`{"verdict":"tombstoned"}`:    {Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofTombstone},
		`{"verdict":"still_unknown"}`: {Finding: retrysafe.FindingUnknown},
	} {
		v, err := parseVerdict([]byte(text))
		if err != nil || v.Finding != want.Finding || v.Proof != want.Proof || v.ProviderRef != want.ProviderRef || v.Result.Status != want.Result.Status || !bytes.Equal(v.Result.Body, want.Result.Body) {
			t.Errorf("%s is %+v, %v", text, v, err)
		}
	}
	for _, text := range []string{
		`{"verdict":"happened","answer":{"status":199}}`, `{"verdict":"happened","answer":{"status":600}}`, `{"verdict":"happened"}`, `{"verdict":"declined"}`, `{}`,
		`{"verdict":"not_happened","answer":{"status":200}}`, `{"verdict":"tombstoned","answer":{"status":200}}`, `{"verdict":"still_unknown","answer":{"status":200}}`,
		`{"verdict":"happened","answer":{"status":200,"body":"a","body_base64":"AA=="}}`, `{"verdict":"not_happened"}{}`,
		`{"verdict":"not_happened","deadline":1}`, `{"verdict":"happened","answer":{"status":200,"headers":{"Connection":["close"]}}}`,
	} {
		if v, err := parseVerdict([]byte(text)); err == nil || v.Finding != retrysafe.FindingUnknown {
			t.Errorf("%s is %+v, %v", text, v, err)
		}
	}
}

// The headers of an answer have their proper names. Two spellings of one are one header.
func TestHeadersOfVerdicts(t *testing.T) {
	t.Parallel()
	v, err := parseVerdict([]byte(`{"verdict":"happened","answer":{"status":200,"headers":{"x-a":["1"],"X-A":["2"],"x-b":["3","4"]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	a, b := v.Result.Header["X-A"], v.Result.Header["X-B"]
	slices.Sort(a)
	if !slices.Equal(a, []string{"1", "2"}) || !slices.Equal(b, []string{"3", "4"}) || len(v.Result.Header) != 2 {
		t.Errorf("the headers are %v", v.Result.Header)
	}
}

// A question has what is known of the operation, and bytes that are no text beside it.
func TestQuestion(t *testing.T) {
	t.Parallel()
	rec := retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "s\xff", Key: "k\xff"}, Operation: "o", ProviderRef: "p", Reason: "r", Attempt: 3, Effects: retrysafe.EffectsKeyed,
		CreatedAt: time.Unix(1, 0), UpdatedAt: time.Unix(2, 0), Inquiry: retrysafe.Inquiry{Tries: 4},
	}
	q := (&names{opts: &Options{}, rec: &rec}).question()
	if q.Scope != rec.Scope || q.Key != rec.Key || q.KeyHash != retrysafe.HashKey(rec.Key) || string(q.ScopeBytes) != rec.Scope || string(q.KeyBytes) != rec.Key || q.Operation != "o" ||
		q.ProviderRef != "p" || q.Reason != "r" || q.Attempt != 3 || q.Effects != rec.Effects.String() || !q.CreatedAt.Equal(rec.CreatedAt) || !q.UpdatedAt.Equal(rec.UpdatedAt) || q.Tries != 4 {
		t.Errorf("the question is %+v", q)
	}
	for _, ref := range []retrysafe.Ref{{Scope: "s", Key: "k\xff"}, {Scope: "s\xff", Key: "k"}} { // one of them is text
		q := (&names{opts: &Options{}, rec: &retrysafe.Record{Ref: ref}}).question()
		if (q.KeyBytes == nil) != (ref.Key == "k") || (q.ScopeBytes == nil) != (ref.Scope == "s") {
			t.Errorf("of %+v it has the bytes %q and %q", ref, q.ScopeBytes, q.KeyBytes)
		}
	}
}

// A resolver is called by its host, and asks only where a network attacker cannot answer.
func TestAddressesOfResolvers(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]error{
		"https://a.example/x": nil, "http://127.0.0.1/x": nil, "http://[::1]:80/x": nil, "http://localhost/x": nil,
		"http://10.0.0.1/x": ErrPlainHTTP, "http://a.example/x": ErrPlainHTTP, "http://localhost.a.example/x": ErrPlainHTTP,
		"ftp://a.example/x": ErrURL, "https:///x": ErrURL, "a.example": ErrURL, "https://u@a.example/": ErrPassword,
	} {
		if _, err := New(address, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", address, err, want)
		}
	}
	r, err := New("http://127.0.0.1:1/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := r.Resolve(t.Context(), retrysafe.Record{}); err == nil || v.By != "resolver 127.0.0.1:1" {
		t.Errorf("got %+v, %v", v, err)
	}
}

func FuzzParseVerdict(f *testing.F) {
	hammer.Add(f, []byte(`{"verdict": "happened", "answer": {"status": 201, "headers": {"A": ["b"]}, "body": "c"}}`))
	hammer.Add(f, []byte(`{"verdict": "tombstoned"}`))
	hammer.Fuzz(f, func(t *testing.T, text []byte) {
		v, err := parseVerdict(text)
		if err != nil {
			return
		}
		answered := v.Finding == retrysafe.FindingHappened || v.Finding == retrysafe.FindingDeclined
		if answered != (v.Result.Status != 0) {
			t.Errorf("%s comes with the status %d", v.Finding, v.Result.Status)
		}
	})
}

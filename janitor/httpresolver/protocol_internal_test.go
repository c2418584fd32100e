package httpresolver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"testing"

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

package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/retrysafe/retrysafe"
)

var fidelityRules = []rule{{
	name:   "answers are byte-exact",
	reason: "An answer comes back as it was stored, byte for byte and header for header, because a retry must get the very answer of the first attempt.",
	check: func(k *kit) {
		every := make([]byte, 256)
		for i := range every {
			every[i] = byte(i)
		}
		for i, result := range []retrysafe.Result{
			{Status: 200, Body: every},
			{Status: 200, Body: []byte(`{"z":1.10,"a":1e2}`)},
			{Status: 200, Body: []byte(" {\r\n\t\"a\" : 1 , \"a\":2}\n\n")},
			{Status: 204},
			{Status: 200, Body: []byte{}},
			{Status: 200, Body: []byte{0}},
			{Status: 599, Omitted: true},
			{Status: 201, Header: map[string][]string{"Link": {"<a>", "<b>", "<a>"}, "X-Empty": {""}, "ETag": {`W/"1"`}, "x-lower": {"kept"}}, Body: []byte("ok")},
			{Status: 201, Header: map[string][]string{"X-Latin-1": {"caf\xe9"}, "X-Utf-8": {"café"}, "X-Odd": {" a,b; \"c\\\" ", "%00", "\t"}}},
		} {
			k.answerSurvives(fmt.Sprintf("k%d", i), result)
		}
	},
}, {
	name:   "large answers are byte-exact",
	reason: "An answer of up to 1 MiB, or the size that the store declares, is kept whole, because a cut body is another answer.",
	check: func(k *kit) {
		size := 1 << 20
		if k.MaxBody > 0 {
			size = min(size, k.MaxBody)
		}
		body := make([]byte, size)
		random := rand.NewChaCha8([32]byte{1})
		_, _ = random.Read(body) // it never fails
		k.answerSurvives("random", retrysafe.Result{Status: 200, Body: body})
		k.answerSurvives("zeros", retrysafe.Result{Status: 200, Body: bytes.Repeat([]byte{0}, size)})
	},
}, {
	name:   "every value survives",
	reason: "All states, lapse policies, effect modes, versions and durations come back as stored, those that this code does not know included, because the store stores and the engine decides.",
	check: func(k *kit) {
		n := 0
		keeps := func(change func(*retrysafe.Write)) {
			n++
			w := k.record(fmt.Sprintf("k%d", n))
			change(&w)
			k.survives(w)
		}
		for state := retrysafe.StateAccepted; state <= retrysafe.StateExpired; state++ {
			keeps(func(r *retrysafe.Write) { *r = in(state, *r, later) })
		}
		for _, lapse := range []retrysafe.Lapse{0, retrysafe.LapseQuarantine, retrysafe.LapseResume, retrysafe.LapseRerun, retrysafe.LapseFail, retrysafe.LapseFail + 1, 255} {
			keeps(func(r *retrysafe.Write) { r.Lapse = lapse })
		}
		for _, effects := range []retrysafe.Effects{0, retrysafe.EffectsUnprotected, retrysafe.EffectsKeyed, retrysafe.EffectsInTx, retrysafe.EffectsInTx + 1, 255} {
			keeps(func(r *retrysafe.Write) { r.Effects = effects })
		}
		for _, version := range []uint8{0, 1, retrysafe.RecordVersion + 1, 7, 8, 14, 15, 16, 127, 128, 255} {
			keeps(func(r *retrysafe.Write) { r.Version = version })
		}
		for _, retain := range []time.Duration{0, 1, time.Millisecond, 59 * time.Second, 61 * time.Minute, 49*time.Hour + 250*time.Millisecond, 10 * 365 * 24 * time.Hour} {
			keeps(func(r *retrysafe.Write) { r.Retain = retain })
		}
		for _, attempt := range []int{0, 1, 2, 1_000_000} {
			keeps(func(r *retrysafe.Write) { r.Attempt = attempt })
		}
		for _, alg := range []uint8{0, 1, 255} {
			keeps(func(r *retrysafe.Write) { r.Fingerprint.Alg = alg })
		}
		keeps(func(r *retrysafe.Write) { r.Fingerprint = retrysafe.Fingerprint{} })
		keeps(func(r *retrysafe.Write) { r.KeyText, r.Request, r.Operation = nil, nil, "" })
	},
}, {
	name:   "texts and bytes survive",
	reason: "Operation, Reason, ProviderRef, KeyText, Request and Checkpoint are kept whatever bytes they hold, because they hold texts of other systems, and a settlement must not fail for an unusual byte.",
	check: func(k *kit) {
		for i, text := range []string{"", " ", "it's", `"quoted" \ back%20slash`, "Straße ключ 鍵 🔑", "a\x00b", "\xff\xfe\x80", "line\r\nline", string(make([]byte, 4000))} {
			r := k.record(fmt.Sprintf("k%d", i))
			r.Operation, r.Reason, r.ProviderRef = text, text, text
			r.KeyText, r.Request = []byte(text), []byte(text)
			r.Checkpoint = retrysafe.Checkpoint{Phase: "p" + text, Data: []byte(text)}
			stored := k.survives(r)

			settled := to(retrysafe.StateUnknown, stored, later)
			settled.Reason, settled.ProviderRef = text+"!", text+"?"
			settled.Checkpoint = retrysafe.Checkpoint{Phase: text + "q", Data: []byte(text + "q")}
			settled.SetCheckpoint = true
			got := k.swap(settled)
			want := left(settled, got)
			want.CreatedAt = stored.CreatedAt
			k.same("returned by Swap", got, want)
			k.same("stored by Swap", k.load(r.Ref), want)
		}
	},
}}

// answerSurvives checks that an answer comes back from a swap, from a load, from a
// list, and with the ErrExists of a retry.
func (k *kit) answerSurvives(key string, want retrysafe.Result) {
	k.t.Helper()
	rec := k.create(k.record(key))
	w := to(retrysafe.StateCompleted, rec, later)
	w.Result = &want
	swapped := k.swap(w)
	retried, err := k.Store.Create(k.ctx, k.record(key))
	k.want("Create of a completed key", err, retrysafe.ErrExists)
	listed, err := k.Store.List(k.ctx, retrysafe.Query{})
	k.want("List", err, nil)
	got := map[string]*retrysafe.Result{"Swap": swapped.Result, "Load": k.load(rec.Ref).Result, "Create": retried.Result, "List": nil}
	for _, r := range listed {
		if r.Ref == rec.Ref {
			got["List"] = r.Result
		}
	}
	for step, result := range got {
		var d differ
		if d.result(result, &want); len(d) > 0 {
			k.failf("%s returned another answer: %v", step, d)
		}
	}
}

// survives creates w's record, checks that it comes back, and returns it as stored.
func (k *kit) survives(w retrysafe.Write) retrysafe.Record {
	k.t.Helper()
	got := k.create(w)
	want := left(w, got)
	k.same("returned", got, want)
	k.same("stored", k.load(w.Ref), want)
	return got
}

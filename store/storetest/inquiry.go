package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
)

var inquiryRules = []rule{{
	name:   "notes are kept",
	reason: "What was found out about a record comes back as it was written, whatever bytes it holds and however much it is, from every step that returns the record, because evidence that was cut or changed is worthless.",
	check: func(k *kit) {
		for i, q := range inquiries() {
			r := k.record(fmt.Sprintf("k%d", i))
			r.Inquiry = q
			k.everywhere(k.survives(r))
		}
		for i, q := range inquiries() {
			rec := k.create(k.record(fmt.Sprintf("swapped %d", i)))
			w := to(retrysafe.StateUnknown, rec, later)
			w.Inquiry = q
			got := k.swap(w)
			want := left(w, got)
			want.CreatedAt = rec.CreatedAt
			k.same("returned by Swap", got, want)
			k.everywhere(got)
		}
	},
}, {
	name:   "swap takes the notes it is given",
	reason: "Inquiry is the caller's in every Swap, with Overwrite and without, none included, because a note is written in the very step that it is about and a new operation begins with none.",
	check: func(k *kit) {
		all := inquiries()
		for _, claims := range []bool{false, true} {
			rec := k.create(k.record(fmt.Sprintf("claims %t", claims)))
			for i, q := range append(all, retrysafe.Inquiry{}, all[0], retrysafe.Inquiry{}) {
				next := to(retrysafe.StateUnknown, rec, later)
				next.Inquiry = q
				if claims {
					next = claim(next, i+2)
				}
				rec = k.swap(next)
				for step, got := range map[string]retrysafe.Record{"Swap": rec, "Load": k.load(rec.Ref)} {
					var d differ
					if d.inquiry(&got.Inquiry, &q); len(d) > 0 {
						k.failf("%s after a Swap with another inquiry, claim %t: %s", step, claims, strings.Join(d, "; "))
					}
				}
			}
		}
	},
}}

// inquiries are examples of what sweepers, resolvers and operators write, and of what a
// sealing store makes of that. Times are whole microseconds: finer ones need not be
// kept.
func inquiries() []retrysafe.Inquiry {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	var full []retrysafe.Note
	for i := range 32 {
		full = append(full, retrysafe.Note{At: at.Add(time.Duration(i) * time.Hour), By: "resolver", State: retrysafe.StateUnknown, Text: strings.Repeat(string(rune('a'+i%26)), 500)})
	}
	var odd []retrysafe.Note
	for _, text := range []string{"", "it's", "Straße ключ 鍵 🔑", "a\x00b", "\xff\xfe\x80", "line\r\nline", `{"a":1}`, `\x00`} {
		odd = append(odd, retrysafe.Note{At: at, By: text, State: retrysafe.StateCompleted, Text: "é" + text, ID: "action " + text})
	}
	return []retrysafe.Inquiry{
		{Tries: 1},
		{Dead: true},
		{Disputed: true},
		{Tries: 1_000_000, Dead: true, Notes: []retrysafe.Note{{At: at, By: "operator anna", State: retrysafe.StateRetryable, Text: "attested", ID: "a-1"}}},
		{Notes: odd},
		{Notes: []retrysafe.Note{{At: at, By: "resolver", State: retrysafe.StateUnknown, Text: "a\x1fb"}, {At: at, By: "operator anna", State: retrysafe.StateUnknown, Text: "c\x1f", ID: "a-1"}}},
		{Tries: 31, Notes: full},
		{Notes: []retrysafe.Note{{Text: strings.Repeat("sealed", 4<<10)}}},
		{Notes: []retrysafe.Note{{}}},
	}
}

// everywhere checks that a record comes back the same from Load, from List and with the
// ErrExists of a retry.
func (k *kit) everywhere(want retrysafe.Record) {
	k.t.Helper()
	k.same("loaded", k.load(want.Ref), want)
	got, err := k.Store.Create(k.ctx, k.record(want.Key))
	k.want("Create of a stored key", err, retrysafe.ErrExists)
	k.same("returned with ErrExists", got, want)
	for _, got := range k.page(retrysafe.Query{Scope: want.Scope}) {
		if got.Ref == want.Ref {
			k.same("listed", got, want)
			return
		}
	}
	k.failf("List leaves out %q", want.Ref)
}

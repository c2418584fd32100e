package storetest

import (
	"strings"

	"github.com/retrysafe/retrysafe"
)

// texts are names that a store might confuse or mangle: by case, by spaces, by
// Unicode normalisation, as a pattern, as markup, as bytes that are no UTF-8.
var texts = []string{
	"plain", "Plain", "PLAIN", "pläin", "pla\u0308in", "straße", "strasse",
	"trail", "trail ", " trail", "tra il", "tra  il",
	`quo"te`, "quo'te", "quo`te", "quo''te", `back\slash`, `back\\slash`, `\`,
	"100%", "100%25", "%41", "A", "a_b", "aXb", "*", "?", "[a]", "{a}", "$1", "null", "0", "00", "1e1", "10",
	"a:b", "a/b", "a|b", "a,b", "a;b", "a=b", "a#b", "--", "/*", "ключ", "鍵", "🔑",
	"\x80", "\xff", "\xff\xfe", "caf\xe9", "\xc3", "\xc3\x28", "\ufffd",
	"Key-A", "key-a", "cafe", "café", "del\x7f", "del",
	strings.Repeat("k", 255), strings.Repeat("k", 254), strings.Repeat("k", 254) + "K", strings.Repeat("\xf0", 255),
}

var keyRules = []rule{{
	name:   "keys are opaque bytes",
	reason: "Any two keys that differ in a byte are two keys, in whatever bytes, case or spaces, because a client gets another client's answer when two keys are taken for one.",
	check: func(k *kit) {
		var refs []retrysafe.Ref
		for _, text := range texts {
			refs = append(refs, retrysafe.Ref{Scope: "acct_1", Key: text})
		}
		k.distinct(refs)
	},
}, {
	name:   "scopes isolate",
	reason: "The same key in two scopes is two keys, however alike the scopes are and wherever the border between scope and key lies, because a scope is a tenant.",
	check: func(k *kit) {
		var refs []retrysafe.Ref
		for _, text := range texts {
			refs = append(refs, retrysafe.Ref{Scope: text, Key: "k"})
		}
		for _, whole := range []string{"abc", "a:b:c", "a/b/c", "a|b|c", "a#b#c", "a\x1fb\x1fc", "11:1"} {
			for i := 1; i < len(whole); i++ {
				refs = append(refs, retrysafe.Ref{Scope: whole[:i], Key: whole[i:]})
			}
		}
		k.distinct(refs)
	},
}}

// distinct checks that each ref has a record of its own.
func (k *kit) distinct(refs []retrysafe.Ref) {
	k.t.Helper()
	stored := make([]retrysafe.Record, len(refs))
	for i, ref := range refs {
		k.absent(ref)
		r := k.record("k")
		r.Ref = ref
		stored[i] = k.create(r)
	}
	for i, ref := range refs {
		k.same("a key came back with another record", k.load(ref), stored[i])
		stored[i] = k.swap(to(retrysafe.StateCompleted, stored[i], later))
	}
	for _, was := range stored {
		k.unchanged("another key's Swap", was)
	}
	found := make(map[retrysafe.Ref]bool)
	for _, r := range k.page(retrysafe.Query{Limit: 50}) {
		found[r.Ref] = true
	}
	for _, ref := range refs {
		if !found[ref] {
			k.failf("List does not return %q as it was created", ref)
		}
	}
}

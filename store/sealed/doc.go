// Package sealed encrypts what a store keeps.
//
// A sealing store wraps any other store and is a [retrysafe.Store] itself. The store
// below never sees the text of a key or its scope, the header and body of an answer, a
// request, the data of a checkpoint, a reason, or the author, time and text of a note.
// A record is found by keyed hashes of scope and key, so uniqueness, lists by scope and
// counts work below as they did before.
//
// There are two kinds of secret, held by a [Keyring]: one index secret for the hashes,
// which never changes, and numbered keys for the contents, of which one is current. To
// rotate, add the new key everywhere as one that reads, then make it current
// everywhere, then wait until the last record under the old one is purged, then remove
// the old one.
//
// # What stays plain
//
// Operation, Fingerprint, State, Lapse, Effects, Version, Owner, Attempt, ProviderRef,
// Retain, Revision and all times, an answer's Status and Omitted, a checkpoint's Phase,
// the number of inquiries into an unknown outcome and whether it was given up;
// operators and sweepers need them. Lengths show. A fingerprint without a secret lets a
// reader of the store try out requests: use keyed fingerprints with this package. Put
// nothing personal in Operation, Phase or ProviderRef.
//
// # What it does not promise
//
// Each sealed field is bound to its record and its place, and to the plain fields that
// are written in the same step and explain it: a Status, a Phase, a Version. An
// attacker that can write to the store below can still delete a record, put back an
// older copy of the whole of it, or change its State. Sealing keeps secrets; it does
// not make a hostile database a safe one.
//
// All writes must go through a sealing store with the same secrets. Wrapping a store
// that already holds records does not seal those: their keys would not be found, and
// their operations would run again. [Check] detects that, and a changed index secret,
// if it is called before the first record is sealed. It looks at a few records only and
// misses a store that holds both kinds.
//
// One record is never sealed: that of [deployment.Ref], which says which
// deployment the store belongs to, before its secrets are known to be the right ones. It
// is written and read below, and this package shows nothing of it.
//
// # What cannot be read
//
// A record that does not open completely is never treated as absent. Create, Swap, Load
// and Reserve return an error that wraps [retrysafe.ErrUnreadable] and says which key
// is missing. It also replaces ErrExists and ErrConflict, so that no caller decides by
// half a record. A Swap that the store below did apply returns it too: an answer that
// cannot be read back is not durable.
//
// List shows such a record in its place and without an error, so that it hides no
// other: Version 0, which every reader of records refuses; a Reason in words; the plain
// fields; no Request, Checkpoint or notes; and a Key that is a handle made by this
// package, since the true one needs the keyring. The same record comes with the errors
// above. By its handle it can be loaded, paged past and swapped. A swap of a lapsed
// record by its handle leaves the sealed fields below as they are, except that a new
// Reason or new notes replace the stored ones. The record cannot be claimed, a stored
// answer is not replaced, and Unknown becomes nothing but Completed: "not found" proves
// nothing if it is not known what to ask the provider for.
package sealed

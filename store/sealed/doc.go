// Package sealed encrypts what a store keeps.
//
// A sealing store stands before any other and is a [retrysafe.Store] itself.
// The store below never sees the text of a key or its scope, the header and
// body of an answer, a request, the data of a checkpoint, a reason, or who noted
// what about a record and when. A record is found by keyed hashes of scope and
// key, so uniqueness, lists by scope and counts work below as they did before.
//
// There are two kinds of secret, held by a [Keyring]: one index secret for the
// hashes, which never changes, and numbered keys for the contents, of which one
// is current. To rotate, add the new key everywhere as one that reads, then make
// it current everywhere, then wait until the last record under the old one is
// purged, then remove the old one.
//
// # What stays plain
//
// Operation, Fingerprint, State, Lapse, Effects, Version, Owner, Attempt,
// ProviderRef, Retain, Revision and all times, an answer's Status and Omitted,
// a checkpoint's Phase, how often an unknown outcome was inquired into and
// whether it was given up; operators and sweepers need them. Lengths show. A
// fingerprint without a secret lets whoever reads the store try out requests:
// use keyed fingerprints with this package. Put nothing personal in Operation,
// Phase or ProviderRef.
//
// # What it does not promise
//
// Each sealed field is bound to its record and its place, and to the plain
// fields that are written in the same step and explain it: a Status, a Phase, a
// Version. Whoever can write to the store below can still delete a record, put
// back an older copy of the whole of it, or change its State. Sealing keeps
// secrets; it does not make a hostile database a safe one.
//
// All that writes goes through a sealing store with the same secrets. A store
// that holds records already is not sealed by putting this package before it:
// its keys would not be found, and their operations would run again. [Check]
// notices that, and a changed index secret, if it is asked before the first
// record is sealed; it looks at a few records only and misses a store that holds
// both kinds.
//
// # What cannot be read
//
// A record that does not open whole is never treated as absent. Create, Swap,
// Load and Reserve return an error that wraps [retrysafe.ErrUnreadable] and says
// which key is missing. That also replaces ErrExists and ErrConflict, so that
// nobody decides by half a record, and it stands for a Swap that the store below
// did apply: what nobody can read back is not a durable answer.
//
// List shows such a record in its place and without an error, so that it hides
// no other: Version 0, which every reader of records refuses; Reason in words;
// the plain fields; no Request, Checkpoint or notes; and a Key that is a handle
// made by this package, for only the keyring can say the true one. The same
// record comes with the errors above. By its handle it can be loaded, paged past
// and swapped: who moves a lapsed record that he cannot read leaves what is
// sealed below as it is, but for a Reason or notes of his own, which replace the
// stored ones. It cannot be claimed, an answer that is stored is not replaced,
// and Unknown becomes nothing but Completed, for "not found" proves nothing where
// nobody knows what to ask a provider for.
package sealed

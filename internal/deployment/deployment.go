// Package deployment names the records that a gateway keeps in its store for the
// deployment: whose keys the store holds, and the record of the health probe.
package deployment

import "github.com/retrysafe/retrysafe"

// Ref names the record in which a store says which deployment its keys belong to, and
// with which settings they were made. It has a system scope, holds nothing of a tenant's,
// and never expires. It has to be readable before the secrets of an encryption are known
// to be the right ones, so it is written below store/sealed, which shows nothing of it.
func Ref() retrysafe.Ref {
	return retrysafe.Ref{Scope: retrysafe.SystemScope("deployment"), Key: "identity"}
}

// Probe names the record that a gateway writes to find out whether the store takes writes.
// Like that of [Ref] it is written below store/sealed: it holds nothing.
func Probe() retrysafe.Ref {
	return retrysafe.Ref{Scope: retrysafe.SystemScope("deployment"), Key: "probe"}
}

// Is reports whether ref names one of these records.
func Is(ref retrysafe.Ref) bool { return ref == Ref() || ref == Probe() }

// Package deployment names the record in which a store says which deployment its keys
// belong to.
package deployment

import "github.com/retrysafe/retrysafe"

// Ref names the record in which a store says which deployment its keys belong to, and
// with which settings they were made. It has a system scope, holds nothing of a tenant's,
// and never expires. It has to be readable before the secrets of an encryption are known
// to be the right ones, so it is written below store/sealed, which shows nothing of it.
func Ref() retrysafe.Ref {
	return retrysafe.Ref{Scope: retrysafe.SystemScope("deployment"), Key: "identity"}
}

package main

import (
	"maps"

	"github.com/retrysafe/retrysafe/prove"
	"github.com/retrysafe/retrysafe/prove/child"
)

// checks are all that can be proven, in the order in which it is.
func checks() (all []prove.Check) {
	return append(all, serverChecks()...)
}

// proveRoles are what this program plays as a child of a check.
func proveRoles() map[string]child.Role {
	all := map[string]child.Role{}
	for _, some := range []map[string]child.Role{} {
		maps.Copy(all, some)
	}
	return all
}

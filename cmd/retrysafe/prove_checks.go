package main

import (
	"maps"
	"slices"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/child"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/field"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/linear"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/model"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/mutate"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/servers"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sim"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sweep"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/wire"
)

// checks are all that can be proven, in the order in which it is.
func checks() []prove.Check {
	return slices.Concat(model.Checks(), sim.Checks(), sweep.Checks(), field.Checks(), linear.Checks(),
		servers.Checks(), wire.Checks(), mutate.Checks())
}

// proveRoles are what this program plays as a child of a check.
func proveRoles() map[string]child.Role {
	all := map[string]child.Role{}
	for _, some := range []map[string]child.Role{sweep.Roles(), field.Roles(), linear.Roles()} {
		maps.Copy(all, some)
	}
	return all
}

package prove

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

// checks returns all checks, in the order in which they run.
func checks() []prove.Check {
	return slices.Concat(model.Checks(), sim.Checks(), sweep.Checks(), field.Checks(), linear.Checks(),
		servers.Checks(), wire.Checks(), mutate.Checks())
}

// RunChild runs the role that a check has started this process for, and returns its
// exit code. If no check has, ok is false.
func RunChild() (code int, ok bool) {
	roles := map[string]child.Role{}
	for _, some := range []map[string]child.Role{sweep.Roles(), field.Roles(), linear.Roles()} {
		maps.Copy(roles, some)
	}
	return child.Run(roles)
}

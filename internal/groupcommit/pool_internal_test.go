package groupcommit

import "github.com/retrysafe/retrysafe/internal/test/poison"

// Every request that goes back to the pool while tests run has been reset, and has no
// answer in its channel.
func init() { poison.Pools(func(x any) { poison.Clean(x) }) }

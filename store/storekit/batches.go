package storekit

import "github.com/retrysafe/retrysafe/internal/groupcommit"

// BatchStats say how much the steps of a store share round trips and commits: how many
// batches were sent and how many requests were in them, how many batches are in flight,
// and how many requests wait for the next one. A store that batches has a method
// BatchStats.
type BatchStats = groupcommit.Stats

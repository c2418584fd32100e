package config

import "github.com/retrysafe/retrysafe/internal/redisurl"

// sharedCache checks the URL of the Redis that gateways share for finished answers.
func (k *checker) sharedCache() {
	if k.Cache.Shared == "" {
		return
	}
	switch at, err := redisurl.Parse(k.Cache.Shared); {
	case err != nil:
		k.refuse("cache.shared", "%w", err)
	case at.Cluster:
		k.refuse("cache.shared", "a cluster is not supported, because its servers have different clocks; name one server, or sentinels")
	}
}

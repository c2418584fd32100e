package config

import (
	"crypto/subtle"
	"time"
)

// Metrics are what /metrics shows.
type Metrics struct {
	// Tenants is how many tenants have a label of their own; zero is none.
	Tenants int
}

const (
	defaultStoreTimeout = 1500 * time.Millisecond
	// A store's own limit for one batch of steps is 5 s.
	minStoreTimeout, maxStoreTimeout = 50 * time.Millisecond, 5 * time.Second
	// mostTenants is how many labels package telemetry has at most.
	mostTenants = 1000
)

// operation refuses settings of the gateway's operation that cannot work.
func (k *checker) operation() {
	if t := k.StoreTimeout; t < minStoreTimeout || t > maxStoreTimeout {
		k.refuse("store_timeout", "it is %s; it must be between %s and %s", printSpan(t), printSpan(minStoreTimeout), printSpan(maxStoreTimeout))
	}
	k.notNegative("server.drain_delay", float64(k.Server.DrainDelay))
	if n := k.Metrics.Tenants; n < 0 || n > mostTenants {
		k.refuse("metrics.tenants", "it is %d; it must be between 0, for no label, and %d", n, mostTenants)
	}
	a, path := &k.Admin, "admin.metrics_token"
	if a.MetricsTokenFile != "" {
		path = "admin.metrics_token_file"
	}
	switch n := len(a.MetricsToken); {
	case n == 0:
	case a.Listen == "" && a.Socket == "":
		k.refuse(path, "it is for /metrics of admin.listen, and there is none")
	case n < minToken:
		k.refuse(path, "the token has %d characters; it takes at least %d: openssl rand -hex 32", n, minToken)
	case subtle.ConstantTimeCompare([]byte(a.MetricsToken), []byte(a.Token)) == 1:
		k.refuse(path, "it is the operators' token; a scraper needs one of its own")
	}
}

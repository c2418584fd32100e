package listener

import (
	"cmp"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// limits are the settings of a connServer. They are compared with ==.
type limits struct {
	tls        config.TLS
	maxHeader  int64
	readHeader time.Duration
	readBody   time.Duration // zero: no bound
	bodyRate   int64         // bytes per second, once readHeader has passed; zero: no bound
	stall      time.Duration // how long a client may refuse to take a piece of an answer
	idle       time.Duration
	drain      time.Duration
	delay      time.Duration // before it
	upgrades   bool
}

// A configuration comes complete; what is missing all the same is not unbounded.
const (
	defaultMaxHeader      = 64 << 10
	defaultMaxConnections = 10_000
	defaultReadHeader     = 10 * time.Second
	defaultIdle           = 2 * time.Minute
	defaultStall          = 2 * time.Minute
	defaultDrain          = 30 * time.Second
)

// adminConnections bounds the operators' listener.
const adminConnections = 128

func limitsOf(s config.Server, t config.TLS, upgrades bool) limits {
	return limits{
		tls:        t,
		maxHeader:  cmp.Or(max(s.MaxHeader, 0), defaultMaxHeader),
		readHeader: cmp.Or(max(s.ReadHeader, 0), defaultReadHeader),
		readBody:   max(s.ReadBody, 0),
		bodyRate:   max(s.MinBodyRate, 0),
		stall:      cmp.Or(max(s.Write, 0), defaultStall),
		idle:       cmp.Or(max(s.Idle, 0), defaultIdle),
		drain:      cmp.Or(max(s.Drain, 0), defaultDrain),
		delay:      max(s.DrainDelay, 0),
		upgrades:   upgrades,
	}
}

func maxConnections(s config.Server) int {
	return cmp.Or(max(s.MaxConnections, 0), defaultMaxConnections)
}

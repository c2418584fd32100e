package listener

import "github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"

// Terms are the bounds that are set for each connection.
func Terms(s config.Server) map[string]int64 {
	t := limitsOf(s, config.TLS{}, false)
	return map[string]int64{
		"head": t.maxHeader, "time for a head": int64(t.readHeader), "time to take an answer": int64(t.stall),
		"idle time": int64(t.idle), "drain": int64(t.drain), "connections": int64(maxConnections(s)),
	}
}

// How many streams a connection may have, and few streams from how many connections on.
const (
	Streams    = streams
	FewStreams = fewStreams
	ManyConns  = manyConns
)

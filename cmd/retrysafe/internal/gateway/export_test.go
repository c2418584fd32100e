package gateway

// Rest closes the idle connections to the upstream.
func (g *Gateway) Rest() { g.upstream.closeIdle() }

package rawhead

import "bytes"

// expectSwitch notes, after a read, whether the latest request asks for another
// protocol. A client that sends more before the answer has come goes on with
// HTTP/1: fresh says that what was read began a message.
func (c *conn) expectSwitch(fresh bool) {
	if fresh {
		c.stage.CompareAndSwap(asking, looking)
	}
	if c.scan.switching {
		c.scan.switching = false
		c.stage.CompareAndSwap(looking, asking)
	}
}

// watchSwitch looks at the first bytes that are written after a request that asks
// for another protocol. The answer to it decides; what is not final decides nothing.
func (c *conn) watchSwitch(p []byte) {
	switch {
	case bytes.HasPrefix(p, []byte("HTTP/1.1 101 ")):
		c.stage.CompareAndSwap(asking, switched)
	case !bytes.HasPrefix(p, []byte("HTTP/1.1 1")):
		c.stage.CompareAndSwap(asking, looking)
	}
}

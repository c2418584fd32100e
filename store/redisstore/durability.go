package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// A Durability says what the server does with a write before it confirms it.
type Durability struct {
	// Class is D: a server of this kind can lose an acknowledged write.
	Class string
	// Mode is "one server", "sentinel" or "cluster".
	Mode string
	// AppendOnly says that every primary writes an append-only file, Fsync when it is
	// flushed: "always", "everysec", "no", or nothing if the server does not tell.
	AppendOnly bool
	Fsync      string
	// Replicas is how many replicas follow the primary that has fewest. MinReplicas is how
	// many of them a step waits for.
	Replicas, MinReplicas int
	// Caveats say, one line each, how an acknowledged answer can be lost.
	Caveats []string
}

// String returns one line for the log at startup.
func (d Durability) String() string {
	s := fmt.Sprintf("class %s: %s, append-only file %t, appendfsync %s, %d replicas, %d of them waited for", d.Class, d.Mode, d.AppendOnly, d.Fsync, d.Replicas, d.MinReplicas)
	if len(d.Caveats) > 0 {
		s += "; " + strings.Join(d.Caveats, "; ")
	}
	return s
}

// Durability asks the servers. A program should log the result at startup.
func (s *Store) Durability(ctx context.Context) (Durability, error) {
	d := Durability{Class: "D", Mode: s.mode, AppendOnly: true, Fsync: "", Replicas: -1, MinReplicas: s.minReplicas}
	err := s.topology.each(func(n *node) error {
		info, err := n.client.Info(ctx).Result()
		if err != nil {
			return err
		}
		f := parseFacts(info)
		d.AppendOnly = d.AppendOnly && f["aof_enabled"] == "1"
		if followers, err := strconv.Atoi(f["connected_slaves"]); err == nil && (d.Replicas < 0 || followers < d.Replicas) {
			d.Replicas = followers
		}
		// A managed server may refuse CONFIG: then it is not known.
		if c, err := n.client.ConfigGet(ctx, "appendfsync").Result(); err == nil {
			d.Fsync = weaker(d.Fsync, c["appendfsync"])
		}
		return nil
	})
	if err != nil {
		return d, fmt.Errorf("redisstore: durability: %w", explain(err))
	}
	d.Replicas = max(d.Replicas, 0)
	d.Caveats = d.caveats()
	return d, nil
}

// weaker returns which of two values of appendfsync promises less.
func weaker(a, b string) string {
	for _, v := range []string{"no", "everysec", "always"} {
		if a == v || b == v {
			return v
		}
	}
	return a
}

func (d *Durability) caveats() (caveats []string) {
	switch {
	case !d.AppendOnly:
		caveats = append(caveats, "no append-only file: a restart of the server loses answers (set appendonly to yes and appendfsync to always)")
	case d.Fsync == "":
		caveats = append(caveats, "appendfsync is not known: unless it is always, a crash of the server's machine loses answers")
	case d.Fsync != "always":
		caveats = append(caveats, "appendfsync is "+d.Fsync+": a crash of the server's machine loses the last answers (set it to always)")
	}
	switch {
	case d.Replicas > 0 && d.MinReplicas == 0:
		caveats = append(caveats, "replicas follow, but no step waits for one: promoting one loses answers that were acknowledged (set MinReplicas, replicas=N in the URL)")
	case d.Replicas > d.MinReplicas && d.MinReplicas > 0:
		caveats = append(caveats, fmt.Sprintf("a step waits for %d of %d replicas: promoting another one loses answers that were acknowledged", d.MinReplicas, d.Replicas))
	}
	return caveats
}

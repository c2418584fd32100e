package tenant

import (
	"crypto/sha256"
	"sync"
	"time"
)

// verified is what a token said that was found good.
type verified struct {
	by     *keySet   // with these keys
	until  time.Time // and is good for so long
	scopes []string  // one for each claim that was known then; "" is an unusable one
}

// goodFor reports whether the token need not be verified again. With other keys it
// must be: the issuer may have taken back the one that it is signed with.
func (v *verified) goodFor(c *claim, keys *keySet, now time.Time) bool {
	return v != nil && v.by == keys && now.Before(v.until) && c.index < len(v.scopes)
}

const (
	maxCached = 4096 // tokens in each half of the cache
	maxAge    = time.Minute
)

// A cache remembers verified tokens by their hashes. What is in the younger half
// becomes the older one when that half is full or a minute old, so it needs no
// cleaning and has no more than two halves.
type cache struct {
	mu         sync.RWMutex
	young, old map[[sha256.Size]byte]*verified
	born       time.Time // the younger half
}

func (c *cache) get(token [sha256.Size]byte) *verified {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if v := c.young[token]; v != nil {
		return v
	}
	return c.old[token]
}

func (c *cache) put(token [sha256.Size]byte, v *verified, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.young == nil || len(c.young) >= maxCached || now.Sub(c.born) >= maxAge {
		c.old, c.young, c.born = c.young, make(map[[sha256.Size]byte]*verified), now
	}
	c.young[token] = v
}

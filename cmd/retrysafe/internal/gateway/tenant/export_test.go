package tenant

import "time"

// Limits that tests hold the package to.
const (
	MaxName    = maxName
	MaxToken   = maxToken
	MaxKeySet  = maxKeySet
	MaxWaiting = maxWaiting
	MaxReading = maxReading
	AskPause   = askPause
	Leeway     = leeway
)

// SetNow lets a test say what time it is. Call it before the first request.
func (j *JWT) SetNow(now func() time.Time) { j.now, j.keys.now = now, now }

// Remembers reports whether a token would be taken now without verifying it.
func (j *JWT) Remembers(token string) bool {
	return j.seen.get(hashOf(cacheHash, token)).goodFor(j.tenant, j.keys.current.Load(), j.now())
}

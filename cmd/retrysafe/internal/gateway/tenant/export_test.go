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

// Remembered is how many verified tokens are remembered.
func (j *JWT) Remembered() int {
	j.seen.mu.RLock()
	defer j.seen.mu.RUnlock()
	return len(j.seen.young) + len(j.seen.old)
}

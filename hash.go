package retrysafe

import (
	"crypto/sha256"
	"encoding/hex"
)

// HashKey is how a key is named in logs and on pages: the same everywhere, and not
// the key, which whoever has it could use. No key has no name.
func HashKey(key string) string {
	if key == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("retrysafe key\x00" + key))
	return hex.EncodeToString(sum[:8])
}

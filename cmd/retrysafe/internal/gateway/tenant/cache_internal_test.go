package tenant

import (
	"crypto/sha256"
	"strconv"
	"testing"
	"time"
)

// However many tokens there are, only so many are remembered, and the last ones are.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	var c cache
	now := time.Now()
	id := func(i int) [sha256.Size]byte { return sha256.Sum256([]byte(strconv.Itoa(i))) }
	for i := range 5 * maxCached {
		c.put(id(i), &verified{scopes: []string{strconv.Itoa(i)}}, now)
		if n := len(c.young) + len(c.old); n > 2*maxCached {
			t.Fatalf("%d tokens are remembered", n)
		}
		for _, back := range []int{0, 1, maxCached - 1} {
			if v := c.get(id(i - back)); i >= back && (v == nil || v.scopes[0] != strconv.Itoa(i-back)) {
				t.Fatalf("token %d after %d: %v", i-back, i, v)
			}
		}
	}
	c.put(id(-1), &verified{}, now.Add(maxAge))
	c.put(id(-2), &verified{}, now.Add(2*maxAge))
	if n := len(c.young) + len(c.old); n != 2 {
		t.Errorf("%d tokens are remembered after two minutes", n)
	}
}

func TestVerifiedIsGoodForItsKeysAndTime(t *testing.T) {
	t.Parallel()
	now, keys := time.Now(), &keySet{}
	v := &verified{by: keys, until: now, scopes: []string{"jwt:acme"}}
	for name, c := range map[string]struct {
		v    *verified
		c    claim
		keys *keySet
		now  time.Time
		want bool
	}{
		"good":             {v, claim{}, keys, now.Add(-1), true},
		"nothing":          {nil, claim{}, keys, now.Add(-1), false},
		"over":             {v, claim{}, keys, now, false},
		"other keys":       {v, claim{}, &keySet{raw: []byte{1}}, now.Add(-1), false},
		"no keys":          {v, claim{}, nil, now.Add(-1), false},
		"a claim of later": {v, claim{index: 1}, keys, now.Add(-1), false},
	} {
		if got := c.v.goodFor(&c.c, c.keys, c.now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

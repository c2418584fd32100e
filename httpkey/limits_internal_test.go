package httpkey

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// However many tenants there are, only so many are remembered, and those who
// have something to be remembered for come first.
func TestBucketsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(1, 2)
		for i := range maxScopes / 2 {
			b.take(strconv.Itoa(i))
		}
		time.Sleep(time.Minute) // they are full again by now
		spender := "spender"
		for range 2 {
			if _, ok := b.take(spender); !ok {
				t.Fatal("refused within the burst")
			}
		}
		for i := maxScopes / 2; i < maxScopes; i++ {
			b.take(strconv.Itoa(i))
		}
		if n := len(b.scopes); n > maxScopes {
			t.Fatalf("%d scopes are remembered", n)
		}
		if wait, ok := b.take(spender); ok || wait <= 0 || wait > time.Second {
			t.Errorf("take = %v, %v; one who has spent his burst is forgotten", wait, ok)
		}
		for i := maxScopes; i < 2*maxScopes; i++ { // all of them busy
			b.take(strconv.Itoa(i))
		}
		if n := len(b.scopes); n > maxScopes {
			t.Errorf("%d scopes are remembered", n)
		}
	})
}

func TestActiveCountsAreBounded(t *testing.T) {
	t.Parallel()
	a := &activeKeys{most: 1, counter: none{}, scopes: make(map[string]*activeCount)}
	for i := range maxScopes + 10 {
		if full, err := a.full(t.Context(), strconv.Itoa(i)); full || err != nil {
			t.Fatalf("full = %v, %v", full, err)
		}
	}
	if n := len(a.scopes); n > maxScopes {
		t.Errorf("%d scopes are remembered", n)
	}
}

func (none) Count(context.Context, string) (int, error) { return 0, nil }

// none is a store that holds nothing.
type none struct{}

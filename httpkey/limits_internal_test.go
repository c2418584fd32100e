package httpkey

import (
	"context"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// However many tenants there are, only so many buckets are kept, and buckets that are
// full again are dropped first.
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
			t.Errorf("take = %v, %v; a tenant that has spent its burst is forgotten", wait, ok)
		}
		for i := maxScopes; i < 2*maxScopes; i++ { // all of them busy
			b.take(strconv.Itoa(i))
		}
		if n := len(b.scopes); n > maxScopes {
			t.Errorf("%d scopes are remembered", n)
		}
	})
}

// A refusal costs nothing, and a token that comes back is there for the next request,
// however much later it comes and whatever was taken in between.
func TestBucketsLoseNoToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(1, 3)
		takes := func(want int) {
			t.Helper()
			got := 0
			for range 100 {
				wait, ok := b.take("acme")
				if ok {
					got++
				} else if wait <= 0 || wait > time.Second {
					t.Fatalf("refused, with a token in %v", wait)
				}
			}
			if got != want {
				t.Errorf("%d tokens were there, want %d", got, want)
			}
		}
		takes(3)
		time.Sleep(time.Second)
		takes(1)
		time.Sleep(600 * time.Millisecond)
		takes(0)
		time.Sleep(400 * time.Millisecond)
		takes(1)
		time.Sleep(100 * time.Millisecond)
		b.giveBack("acme")
		b.giveBack("acme")
		takes(2)
		time.Sleep(900 * time.Millisecond)
		takes(1)
		time.Sleep(time.Hour)
		for range 10 {
			b.giveBack("acme") // a bucket holds no more than its burst
		}
		takes(3)
	})
}

func TestBucketsOfAnyRate(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []float64{1e-300, math.SmallestNonzeroFloat64} {
		b := newBuckets(perSecond, twice(perSecond))
		if _, ok := b.take("acme"); !ok {
			t.Errorf("rate %v: the first is refused", perSecond)
		}
		if wait, ok := b.take("acme"); ok || wait < time.Hour {
			t.Errorf("rate %v: take = %v, %v", perSecond, wait, ok)
		}
	}
	for _, perSecond := range []float64{1e30, math.MaxFloat64, math.Inf(1)} {
		b := newBuckets(perSecond, twice(perSecond))
		for range 100 {
			if wait, ok := b.take("acme"); !ok {
				t.Fatalf("rate %v: refused for %v", perSecond, wait)
			}
			b.giveBack("acme")
		}
		b.forget(time.Now())
	}
	for perSecond, want := range map[float64]int{0.1: 1, 0.5: 1, 0.75: 2, 1: 2, 2.2: 5} {
		if got := twice(perSecond); got != want {
			t.Errorf("the burst of %v is %d, want %d", perSecond, got, want)
		}
	}
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

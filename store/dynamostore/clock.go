package dynamostore

import (
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// A clock is the store's time. It is the node's clock as long as that agrees with the
// Date headers of the service, and the nearest time that agrees otherwise.
//
// Each response bounds the offset between the two clocks: the service wrote its Date
// after the request was sent and before the response was received, and a Date is cut to
// the second. The bounds of several responses together are narrower than those of one.
type clock struct {
	// local is the node's clock. It does not follow changes of the system's time.
	local func() time.Time

	mu       sync.Mutex
	last     time.Time // the latest time that was given out; time never goes back
	known    bool      // there were responses
	low      time.Duration
	high     time.Duration
	at       time.Time // when the bounds were set, by local
	disputes int       // how many responses in a row contradict the bounds
	date     time.Time // the latest Date of a response
}

const (
	// maxOffset is by how much the node's clock may differ from the service's when the
	// store is opened. The service itself refuses requests that are signed with a clock
	// that is further away.
	maxOffset = 5 * time.Minute
	// slack is by how much a Date may be behind or ahead of the service's own clock. Servers
	// keep it for a second and renew it late when they are busy. A node whose clock is not
	// further away is not corrected, so that nodes with NTP agree to the millisecond.
	slack = time.Second
	// maxDrift is by how much a node's clock may be too fast or too slow.
	maxDrift = 500e-6
	// maxDisputes is how many responses in a row have to contradict earlier ones to be
	// believed. One server with a wrong clock is not; a machine that was suspended sees
	// all servers disagree.
	maxDisputes = 3
)

// started pins the system's time once for all clocks of this process. What is added to it
// is monotonic.
var started = time.Now()

func newClock() *clock {
	return &clock{local: func() time.Time { return started.Add(time.Since(started)) }}
}

// now returns the store's time, to the microsecond. It never goes back.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.local().Add(c.offset()).Truncate(time.Microsecond).UTC()
	if t.Before(c.last) {
		return c.last
	}
	c.last = t
	return t
}

// notBefore returns the store's time, or that of a revision, which is when the record was
// written last, if the node that wrote it has a slightly faster clock. So the times of
// one record follow its revisions.
func (c *clock) notBefore(revision int64) time.Time {
	now := c.now()
	if ahead := revision - now.UnixMicro(); ahead > 0 && ahead < maxOffset.Microseconds() {
		return time.UnixMicro(revision).UTC()
	}
	return now
}

// offset returns by how much the node's clock is corrected. The caller holds mu.
func (c *clock) offset() time.Duration {
	switch {
	case !c.known:
		return 0
	case c.low > 0:
		return c.low
	case c.high < 0:
		return c.high
	}
	return 0
}

// correction returns by how much the node's clock is corrected.
func (c *clock) correction() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset()
}

// observe takes a Date of the service into account. Sent and received are by local.
func (c *clock) observe(sent, received, date time.Time) {
	low, high := date.Sub(received)-slack, date.Add(time.Second).Sub(sent)+slack
	c.mu.Lock()
	defer c.mu.Unlock()
	if date.After(c.date) {
		c.date = date
	}
	if high < low {
		return // the response took no time: local went back
	}
	if !c.known {
		c.set(low, high, received)
		return
	}
	drift := time.Duration(float64(received.Sub(c.at).Abs()) * maxDrift)
	kept := [2]time.Duration{c.low - drift, c.high + drift}
	if low <= kept[1] && high >= kept[0] {
		c.set(max(low, kept[0]), min(high, kept[1]), received)
		return
	}
	if c.disputes++; c.disputes >= maxDisputes {
		c.set(low, high, received)
	}
}

// latestDate returns the latest Date of a response.
func (c *clock) latestDate() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.date
}

// set sets the bounds. The caller holds mu.
func (c *clock) set(low, high time.Duration, at time.Time) {
	c.known, c.low, c.high, c.at, c.disputes = true, low, high, at, 0
}

// timed is an HTTP client that shows the Date of each response to a clock.
type timed struct {
	dynamodb.HTTPClient
	clock *clock
}

func (t timed) Do(r *http.Request) (*http.Response, error) {
	sent := t.clock.local()
	response, err := t.HTTPClient.Do(r)
	if err != nil {
		return nil, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		t.clock.observe(sent, t.clock.local(), date)
	}
	return response, nil
}

package demo

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// fault is how the provider fails, and for how many more calls.
type fault struct {
	Mode mode `json:"mode"`
	// Delay is for slow. Default 2 s.
	Delay duration `json:"delay,omitempty"`
	// Times is how many calls fail; 0 is all.
	Times int `json:"times,omitempty"`
}

type mode string

const (
	none        mode = "none"
	decline     mode = "decline"      // it answers 402
	slow        mode = "slow"         // it charges, and answers late
	errorBefore mode = "error_before" // it answers 500, and has not charged
	errorAfter  mode = "error_after"  // it answers 500, and has charged
	dropAfter   mode = "drop_after"   // it charges, and drops the connection
)

const (
	defaultDelay = 2 * time.Second
	maxDelay     = time.Minute
)

func (f *fault) check() error {
	switch f.Mode {
	case none, decline, slow, errorBefore, errorAfter, dropAfter:
	default:
		return fmt.Errorf("mode %q is not one of none, decline, slow, error_before, error_after, drop_after", f.Mode)
	}
	switch {
	case f.Delay < 0 || f.Delay > duration(maxDelay):
		return fmt.Errorf("delay is not between 0s and %v", maxDelay)
	case f.Times < 0:
		return errors.New("times is negative")
	}
	return nil
}

// next returns the fault of one call, and counts the call.
func (f *fault) next() fault {
	now := *f
	if f.Times == 1 {
		*f = fault{Mode: none}
	}
	if f.Times > 1 {
		f.Times--
	}
	return now
}

func (p *provider) setFault(w http.ResponseWriter, r *http.Request) {
	var f fault
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = decodeStrictly(body, &f)
	}
	if err == nil {
		err = f.check()
	}
	if err != nil {
		reply(w, http.StatusBadRequest, problem{`send {"mode": "drop_after", "times": 3}: ` + err.Error()})
		return
	}
	if f.Mode == slow && f.Delay == 0 {
		f.Delay = duration(defaultDelay)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	reply(w, http.StatusOK, f)
}

// duration is a time.Duration that is written as in Go: "2s".
type duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

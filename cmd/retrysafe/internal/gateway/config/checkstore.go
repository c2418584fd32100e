package config

import (
	"fmt"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// completeRoom lowers the limits of bodies to what a record of the store has room for,
// where the file does not say them. The route of an asynchronous request keeps the request
// beside the answer.
func (c *Config) completeRoom() {
	at, err := storeurl.Parse(c.Store)
	most := at.MaxAnswer()
	if err != nil || most == 0 {
		return
	}
	fit := func(s *Settings, said func(field string) bool) {
		room := most
		if s.Async {
			room = most / 2
			if !said("max_request") {
				s.MaxRequest = min(s.MaxRequest, room)
			}
		}
		if !said("max_response") {
			s.MaxResponse = min(s.MaxResponse, room)
		}
	}
	inDefaults := func(field string) bool { return c.src.said(child("defaults", field)) }
	fit(&c.Defaults, inDefaults)
	for i := range c.Routes {
		fit(&c.Routes[i].Settings, func(field string) bool {
			return inDefaults(field) || c.src.said(child(element("routes", i), field))
		})
	}
}

// roomOf returns which bodies the store has no room for. An answer that the store refuses
// would leave the outcome of an operation that ran unknown.
func (k *checker) roomOf(s *Settings) []wrong {
	at, err := storeurl.Parse(k.Store)
	most := at.MaxAnswer()
	switch kib := most >> 10; {
	case err != nil || most == 0 || s.MaxResponse <= 0 || s.MaxRequest <= 0: // said elsewhere
		return nil
	case s.MaxResponse > most:
		return []wrong{{"max_response", fmt.Errorf("a record of a %s store has room for an answer of %dKiB; write %dKiB or less: a larger answer is sent, and a retry gets only the fact that it ran", at.Kind, kib, kib), false}}
	case s.Async && s.MaxRequest+s.MaxResponse > most:
		return []wrong{{"max_request", fmt.Errorf("a record of a %s store has room for %dKiB, and an asynchronous route keeps the request beside the answer; let max_request and max_response have %dKiB together", at.Kind, kib, kib), true}}
	}
	return nil
}

package config

import (
	"fmt"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// roomOf returns which bodies the store has no room for. An answer that the store refuses
// would leave the outcome of an operation that ran unknown.
func (k *checker) roomOf(s *Settings) []wrong {
	at, err := storeurl.Parse(k.Store)
	most := at.MaxAnswer()
	switch kib := most >> 10; {
	case err != nil || most == 0 || s.MaxResponse <= 0 || s.MaxRequest <= 0: // said elsewhere
		return nil
	case s.MaxResponse > most:
		return []wrong{{"max_response", fmt.Errorf("a record of a %s store has room for an answer of %dKiB; write max_response: %dKiB or less: a larger answer is sent, and a retry gets only the fact that it ran", at.Kind, kib, kib), true}}
	case s.Async && s.MaxRequest+s.MaxResponse > most:
		return []wrong{{"max_request", fmt.Errorf("a record of a %s store has room for %dKiB, and an asynchronous route keeps the request beside the answer; let max_request and max_response have %dKiB together", at.Kind, kib, kib), true}}
	}
	return nil
}

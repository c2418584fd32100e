package tenant

import (
	"errors"
	"fmt"
	"testing"
)

// A client whose token cannot be checked now keeps it: it is not asked for another one.
func TestChallengeSaysWhatIsWrongWithTheToken(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		fmt.Errorf("read: %w", ErrUnavailable): "",
		errNoToken:                             `Bearer realm="api"`,
		errTwoTokens:                           `Bearer realm="api", error="invalid_token"`,
		errUnknownKey:                          `Bearer realm="api", error="invalid_token"`,
		ErrExpired:                             `Bearer realm="api", error="invalid_token"`,
	} {
		got := ""
		if c := new(challengeError); errors.As(unauthorized(err), &c) {
			got = c.Challenge()
		}
		if got != want || !errors.Is(unauthorized(err), err) {
			t.Errorf("%v: the challenge is %q, want %q", err, got, want)
		}
	}
}

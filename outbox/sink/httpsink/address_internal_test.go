package httpsink

import (
	"errors"
	"net/netip"
	"testing"
)

// TestW71_AddressIsJudgedWhenItIsDialled: the guard sees numbers only, so a name
// that leads elsewhere each time it is asked for gains nothing.
func TestW71_AddressIsJudgedWhenItIsDialled(t *testing.T) {
	t.Parallel()
	check := guard([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")})
	for address, allowed := range map[string]bool{
		"93.184.216.34:443": true, "8.8.8.8:80": true, "[2606:4700::1]:443": true, "[::ffff:8.8.8.8]:443": true,
		"10.1.2.3:443": true, "[::ffff:10.1.2.3]:443": true, "[fd00:1::5]:443": true,
		"10.2.0.1:443": false, "[::ffff:10.2.0.1]:443": false, "[fd00:2::5]:443": false, "127.0.0.1:1": false,
		"[fe80::1%eth0]:443": false, "[2606:4700::1%eth0]:443": false, "/run/socket": false, "example.com:443": false,
	} {
		network := "tcp4"
		if address[0] == '[' {
			network = "tcp6"
		}
		err := check(t.Context(), network, address, nil)
		if (err == nil) != allowed || err != nil && !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if check(t.Context(), "unix", "8.8.8.8:443", nil) == nil {
		t.Error("a socket of another kind is dialled")
	}
}

package httpsink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// ErrAddress says that the endpoint's host resolves to an address that is neither public
// nor in [Options.Allow].
var ErrAddress = errors.New("httpsink: address refused")

// special are ranges that are not part of the public internet, or lead out of it,
// besides those that package netip knows.
var special = prefixes(
	"0.0.0.0/8",        // this network
	"100.64.0.0/10",    // carrier-grade NAT; metadata services of some clouds
	"168.63.129.16/32", // a cloud's internal services, at a public address
	"192.0.0.0/24",     // protocol assignments; metadata services of some clouds
	"192.0.2.0/24",     // documentation
	"192.88.99.0/24",   // relays of 6to4
	"198.18.0.0/15",    // benchmarks
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"240.0.0.0/4",      // reserved, and broadcast
	"2001::/23",        // protocol assignments, Teredo among them
	"2001:db8::/32",    // documentation
	"2002::/16",        // 6to4: any IPv4 address within
	"3fff::/20",        // documentation
)

// global is all of IPv6 that is public.
var global = netip.MustParsePrefix("2000::/3")

func prefixes(list ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(list))
	for i, text := range list {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

// public reports whether a is an address of the public internet.
func public(a netip.Addr) bool {
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.Zone() != "" || a.Is6() && !global.Contains(a) {
		return false
	}
	return !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}

// guard returns a check of each address that runs just before it is dialled, after the
// name was resolved. So DNS rebinding, a name that resolves to another address each time,
// does not pass it.
func guard(allow []netip.Prefix) func(ctx context.Context, network, address string, _ syscall.RawConn) error {
	return func(_ context.Context, network, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil || network != "tcp4" && network != "tcp6" {
			return fmt.Errorf("%w: %s %s is not a TCP address", ErrAddress, network, address)
		}
		a := at.Addr().Unmap() // ::ffff:127.0.0.1 is 127.0.0.1
		if public(a) || slices.ContainsFunc(allow, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return nil
		}
		return fmt.Errorf("%w: %s is not public; allow it if you mean it", ErrAddress, a)
	}
}

func dialer(allow []netip.Prefix) *net.Dialer { return &net.Dialer{ControlContext: guard(allow)} }

package tenant

import "net/netip"

// Proxies are the peers that may speak for others.
type Proxies struct{ prefixes []netip.Prefix }

// TrustedProxies returns those with an address in one of the prefixes. IPv4 addresses
// are taken as such, also where they are written as IPv6.
func TrustedProxies(prefixes []netip.Prefix) Proxies {
	const mapped = 96 // bits before the IPv4 address
	p := Proxies{make([]netip.Prefix, 0, len(prefixes))}
	for _, prefix := range prefixes {
		if prefix.Addr().Is4In6() && prefix.Bits() >= mapped {
			prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-mapped)
		}
		p.prefixes = append(p.prefixes, prefix)
	}
	return p
}

// Include reports whether a peer, as [http.Request.RemoteAddr] has it, is one of them.
// One that is not an IP address is not. Prefixes have no zones, so they mean all.
func (p Proxies) Include(peer string) bool {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return false
	}
	addr := at.Addr().Unmap().WithZone("")
	for _, prefix := range p.prefixes {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

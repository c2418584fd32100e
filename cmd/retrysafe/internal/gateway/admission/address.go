package admission

import "net/netip"

// AddressOf returns the address that a remote end counts as, of which the text is an
// address and a port: an IPv4 address, or the /64 network of an IPv6 address, because one
// host has many of those. It is the zero address if the text is none.
func AddressOf(remote string) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return Plain(at.Addr())
}

// Plain is AddressOf for an address alone.
func Plain(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return ip
}

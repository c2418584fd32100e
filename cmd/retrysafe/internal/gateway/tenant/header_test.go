package tenant_test

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

const tenantHeader = "X-Tenant-Id"

func TestHeaderNamesTheTenant(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines []string
		want  string
		err   error
	}{
		"a name":               {[]string{"acme"}, "header:acme", nil},
		"case matters":         {[]string{"ACME"}, "header:ACME", nil},
		"visible characters":   {[]string{"urn:org/42|a~!\"'%"}, "header:urn:org/42|a~!\"'%", nil},
		"as long as it may be": {[]string{strings.Repeat("a", tenant.MaxName)}, "header:" + strings.Repeat("a", tenant.MaxName), nil},
		"none":                 {nil, "", tenant.ErrMissing},
		"empty":                {[]string{""}, "", tenant.ErrInvalid},
		"two lines":            {[]string{"acme", "umbrella"}, "", tenant.ErrInvalid},
		"the same line twice":  {[]string{"acme", "acme"}, "", tenant.ErrInvalid},
		"an empty second line": {[]string{"acme", ""}, "", tenant.ErrInvalid},
		"joined lines":         {[]string{"acme,umbrella"}, "", tenant.ErrInvalid},
		"a space before":       {[]string{" acme"}, "", tenant.ErrInvalid},
		"a space after":        {[]string{"acme "}, "", tenant.ErrInvalid},
		"a space within":       {[]string{"ac me"}, "", tenant.ErrInvalid},
		"a tab":                {[]string{"acme\t"}, "", tenant.ErrInvalid},
		"a zero byte":          {[]string{"\x00retrysafe/operator"}, "", tenant.ErrInvalid},
		"a separator":          {[]string{"acme\x1fby\x1falice"}, "", tenant.ErrInvalid},
		"a new line":           {[]string{"acme\nX-Tenant-Id: umbrella"}, "", tenant.ErrInvalid},
		"delete":               {[]string{"acme\x7f"}, "", tenant.ErrInvalid},
		"beyond ASCII":         {[]string{"acmé"}, "", tenant.ErrInvalid},
		"no UTF-8":             {[]string{"acm\xe9"}, "", tenant.ErrInvalid},
		"too long":             {[]string{strings.Repeat("a", tenant.MaxName+1)}, "", tenant.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := tenant.Header("x-tenant-id", prefixes("192.0.2.0/24"))
			r := request()
			r.Header[tenantHeader] = c.lines
			if c.lines == nil {
				delete(r.Header, tenantHeader)
			}
			got, err := f(r)
			if got != c.want || !errors.Is(err, c.err) {
				t.Fatalf("got %q, %v; want %q, %v", got, err, c.want, c.err)
			}
			for _, line := range c.lines {
				if err != nil && line != "" && strings.Contains(err.Error(), line) {
					t.Errorf("the error %q shows what was sent", err)
				}
			}
		})
	}
}

// W12: a peer that is not a trusted proxy cannot choose a tenant, whatever it sends.
func TestW12_HeaderIsBelievedFromTrustedPeersOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trusted []netip.Prefix
		peer    string
		want    bool
	}{
		"in the prefix":                {prefixes("10.0.0.0/8"), "10.1.2.3:80", true},
		"in the second prefix":         {prefixes("10.0.0.0/8", "192.0.2.7/32"), "192.0.2.7:80", true},
		"beside the prefix":            {prefixes("10.0.0.0/8"), "11.0.0.1:80", false},
		"a neighbour of one address":   {prefixes("192.0.2.7/32"), "192.0.2.8:80", false},
		"nobody is trusted":            {nil, "127.0.0.1:80", false},
		"an invalid prefix":            {[]netip.Prefix{{}}, "127.0.0.1:80", false},
		"IPv4 as IPv6":                 {prefixes("10.0.0.0/8"), "[::ffff:10.1.2.3]:80", true},
		"IPv4 as IPv6, beside":         {prefixes("10.0.0.0/8"), "[::ffff:11.0.0.1]:80", false},
		"a prefix of IPv4 as IPv6":     {prefixes("::ffff:10.0.0.0/104"), "10.1.2.3:80", true},
		"both as IPv6":                 {prefixes("::ffff:10.0.0.0/104"), "[::ffff:10.1.2.3]:80", true},
		"as IPv6, beside":              {prefixes("::ffff:10.0.0.0/104"), "11.0.0.1:80", false},
		"all of IPv4 as IPv6":          {prefixes("::ffff:0.0.0.0/96"), "11.0.0.1:80", true},
		"IPv6":                         {prefixes("2001:db8::/32"), "[2001:db8::1]:80", true},
		"IPv6, beside":                 {prefixes("2001:db8::/32"), "[2001:db9::1]:80", false},
		"all of IPv6 is not all":       {prefixes("::/0"), "10.1.2.3:80", false},
		"all of IPv4 is not all":       {prefixes("0.0.0.0/0"), "[2001:db8::1]:80", false},
		"a zone":                       {prefixes("fe80::/10"), "[fe80::1%eth0]:80", true},
		"a zone, beside":               {prefixes("fe80::/10"), "[2001:db8::1%eth0]:80", false},
		"loopback of IPv6":             {prefixes("127.0.0.0/8", "::1/128"), "[::1]:80", true},
		"an address without a port":    {prefixes("10.0.0.0/8"), "10.1.2.3", false},
		"no address":                   {prefixes("0.0.0.0/0", "::/0"), "", false},
		"a unix socket":                {prefixes("0.0.0.0/0", "::/0"), "@", false},
		"a host name":                  {prefixes("0.0.0.0/0", "::/0"), "localhost:80", false},
		"IPv4 with a zero before":      {prefixes("10.0.0.0/8"), "010.1.2.3:80", false},
		"a list, as a proxy writes it": {prefixes("10.0.0.0/8"), "10.1.2.3, 11.0.0.1:80", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request([2]string{tenantHeader, "acme"}, [2]string{"X-Forwarded-For", "10.1.2.3"},
				[2]string{"Forwarded", "for=10.1.2.3"}, [2]string{"X-Real-Ip", "10.1.2.3"})
			r.RemoteAddr = c.peer
			got, err := tenant.Header(tenantHeader, c.trusted)(r)
			if c.want {
				if got != "header:acme" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
			} else if got != "" || !errors.Is(err, tenant.ErrUntrusted) {
				t.Errorf("got %q, %v; a peer that is not trusted chose a tenant", got, err)
			}
		})
	}
}

// A peer that is not trusted learns nothing else, not even that a header is missing.
func TestUntrustedPeerIsRefusedFirst(t *testing.T) {
	t.Parallel()
	for _, lines := range [][][2]string{nil, {{tenantHeader, " "}}, {{tenantHeader, "a"}, {tenantHeader, "b"}}} {
		if _, err := tenant.Header(tenantHeader, nil)(request(lines...)); !errors.Is(err, tenant.ErrUntrusted) {
			t.Errorf("%v: %v", lines, err)
		}
	}
}

// The prefixes are copied: changing the caller's slice later changes nothing.
func TestTrustedPrefixesAreCopied(t *testing.T) {
	t.Parallel()
	trusted := prefixes("10.0.0.0/8")
	f := tenant.Header(tenantHeader, trusted)
	trusted[0] = netip.MustParsePrefix("0.0.0.0/0")
	if _, err := f(request([2]string{tenantHeader, "acme"})); !errors.Is(err, tenant.ErrUntrusted) {
		t.Errorf("got %v", err)
	}
}

// More tenants than are remembered, by many requests at once: each gets its own.
func TestW73_ManyTenantsAtOnce(t *testing.T) {
	t.Parallel()
	f := tenant.Header(tenantHeader, prefixes("192.0.2.0/24"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 5000 {
				name := "tenant-" + strconv.Itoa(i)
				if got, err := f(request([2]string{tenantHeader, name})); got != "header:"+name || err != nil {
					t.Errorf("%s got %q, %v", name, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

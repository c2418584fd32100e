package admission_test

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
)

var nowhere netip.Addr

// fill opens claims of n bytes for a consumer until it is refused.
func fill(b *admission.Budget, tenant string, from netip.Addr, n int64) (held int64, claims []*admission.Claim) {
	for {
		c := new(admission.Claim)
		if c.Open(b, tenant, from, n) != admission.LimitNone {
			return held, claims
		}
		held, claims = held+n, append(claims, c)
	}
}

func closeAll(claims []*admission.Claim) {
	for _, c := range claims {
		c.Close()
	}
}

// One consumer gets half, two get a third each, and the next one always finds room.
func TestConsumerHoldsAtMostWhatIsFree(t *testing.T) {
	t.Parallel()
	b := admission.New(1200, 1<<30)
	first, one := fill(b, "a", nowhere, 10)
	if first != 600 {
		t.Errorf("one consumer got %d of 1200, want half", first)
	}
	second, two := fill(b, "b", nowhere, 10)
	if second != 300 {
		t.Errorf("the next one got %d, want half of what is left", second)
	}
	closeAll(one)
	again, three := fill(b, "a", nowhere, 10)
	if again < 300 {
		t.Errorf("the first one got %d after it had given all back", again)
	}
	closeAll(two)
	closeAll(three)
	if left := b.Memory(); left.Used != 0 || left.Most != 1200 {
		t.Errorf("in the end it is %+v", left)
	}
	if left := b.Requests(); left.Used != 0 {
		t.Errorf("in the end requests are %+v", left)
	}
}

// A consumer that uses ever new names is bounded by its address.
func TestInventedTenantsShareTheirAddress(t *testing.T) {
	t.Parallel()
	b := admission.New(1000, 1<<30)
	from, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	var held int64
	for i := range 1000 {
		c := new(admission.Claim)
		if c.Open(b, fmt.Sprint("invented", i), from, 10) == admission.LimitNone {
			held += 10
		}
	}
	if held != 500 {
		t.Errorf("an address with 1000 names got %d of 1000, want half", held)
	}
	if got, _ := fill(b, "honest", other, 10); got != 250 {
		t.Errorf("another address got %d, want half of what is left", got)
	}
}

// A request of a tenant is refused when its requests are more than could still come.
func TestRequestsAreShared(t *testing.T) {
	t.Parallel()
	b := admission.New(1<<40, 10)
	if n, _ := fill(b, "a", nowhere, 1); n != 5 {
		t.Errorf("a tenant has %d of 10 requests, want 5", n)
	}
	c := new(admission.Claim)
	if limit := c.Open(b, "a", nowhere, 1); limit != admission.LimitRequests || c.IsOpen() {
		t.Errorf("refused for %q, open is %v", limit, c.IsOpen())
	}
	if limit := c.Open(b, "b", nowhere, 1); limit != admission.LimitNone {
		t.Errorf("another tenant is refused for %q", limit)
	}
}

// A request that needs more than anyone may have ends if it is alone.
func TestOversizedRequestAloneIsLetThrough(t *testing.T) {
	t.Parallel()
	b := admission.New(100, 1<<30)
	var large, small admission.Claim
	if limit := large.Open(b, "a", nowhere, 40); limit != admission.LimitNone {
		t.Fatalf("refused for %q", limit)
	}
	for range 9 {
		if !large.Charge(40) {
			t.Fatal("alone it is refused")
		}
	}
	if limit := small.Open(b, "b", nowhere, 1); limit != admission.LimitMemory {
		t.Errorf("beside it another gets %q, want a refusal", limit)
	}
	large.Close()
	if limit := small.Open(b, "b", nowhere, 1); limit != admission.LimitNone {
		t.Errorf("refused for %q when all is free", limit)
	}
	if large.Charge(1) {
		t.Error("a closed claim was charged")
	}
	large.Close()
	small.Close()
	if left := b.Memory().Used; left != 0 {
		t.Errorf("%d bytes are left over", left)
	}
}

// One request alone is let through, whatever it needs, and also where there is room for one
// request only. Requests that count for no consumer may use all there is.
func TestLoneRequestIsLetThroughAtOnce(t *testing.T) {
	t.Parallel()
	b := admission.New(100, 1)
	var large, other admission.Claim
	for range 2 {
		if limit := large.Open(b, "a", nowhere, 400); limit != admission.LimitNone {
			t.Fatalf("refused for %q", limit)
		}
		if limit := other.Open(b, "b", nowhere, 0); limit != admission.LimitRequests {
			t.Errorf("a second request gets %q", limit)
		}
		large.Close()
	}
	if held, _ := fill(admission.New(100, 1<<30), "", nowhere, 10); held != 100 {
		t.Errorf("requests of no consumer got %d of 100", held)
	}
}

// Whatever happens at once, nothing is lost and the budget is not exceeded.
func TestBudgetUnderConcurrency(t *testing.T) {
	t.Parallel()
	const most = 10_000
	b := admission.New(most, 1<<30)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			tenant := fmt.Sprint("t", i%4)
			for range 500 {
				var c admission.Claim
				if c.Open(b, tenant, nowhere, 100) != admission.LimitNone {
					continue
				}
				for c.Charge(100) && b.Memory().Used < most/2 {
				}
				c.Close()
			}
		})
	}
	all.Wait()
	if left := b.Memory().Used + b.Requests().Used; left != 0 {
		t.Errorf("%d are left over", left)
	}
}

// What is refused takes nothing, not even for a moment: a small request beside it fits.
func TestRefusedClaimRefusesNoOther(t *testing.T) {
	t.Parallel()
	b := admission.New(1000, 1<<30)
	var held admission.Claim // so that the large one is not alone
	if limit := held.Open(b, "c", nowhere, 1); limit != admission.LimitNone {
		t.Fatalf("refused for %q", limit)
	}
	var done atomic.Bool
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for !done.Load() {
				var large admission.Claim
				if large.Open(b, "large", nowhere, 990) == admission.LimitNone {
					t.Error("the large one was let in")
					return
				}
			}
		})
	}
	for range 20_000 {
		var small admission.Claim
		if limit := small.Open(b, "small", nowhere, 10); limit != admission.LimitNone {
			t.Errorf("a small one that fits was refused for %q", limit)
			break
		}
		small.Close()
	}
	done.Store(true)
	all.Wait()
}

// There is a count for each limit.
func TestEachLimitIsCounted(t *testing.T) {
	t.Parallel()
	b := admission.New(100, 10)
	for l := admission.LimitMemory; l <= admission.LimitExchanges; l++ {
		b.Count(l)
		if n, ok := b.Refusals()[l.String()]; !ok || n != 1 {
			t.Errorf("%q: %d refusals are counted: %v", l, n, b.Refusals())
		}
	}
}

// A claim that was refused holds nothing, and gives nothing back that it has not taken.
func TestRefusedClaimHoldsNothing(t *testing.T) {
	t.Parallel()
	for want, c := range map[admission.Limit]struct{ requests, bytes int64 }{admission.LimitMemory: {10, 1000}, admission.LimitRequests: {2, 1}} {
		b := admission.New(100, c.requests)
		var held, refused admission.Claim
		if limit := held.Open(b, "a", nowhere, 10); limit != admission.LimitNone {
			t.Fatalf("refused for %q", limit)
		}
		if limit := refused.Open(b, "b", nowhere, c.bytes); limit != want || refused.IsOpen() {
			t.Errorf("refused for %q, want %q; open is %v", limit, want, refused.IsOpen())
		}
		refused.Close()
		b.Count(want)
		if n := b.Refusals()[want.String()]; n != 1 {
			t.Errorf("%q: %d refusals are counted: %v", want, n, b.Refusals())
		}
		if b.Memory().Used != 10 || b.Requests().Used != 1 {
			t.Errorf("%q: held are %+v and %+v", want, b.Memory(), b.Requests())
		}
	}
}

// A budget is resized while claims are open.
func TestResize(t *testing.T) {
	t.Parallel()
	b := admission.New(100, 10)
	var c admission.Claim
	if limit := c.Open(b, "a", nowhere, 10); limit != admission.LimitNone {
		t.Fatalf("refused for %q", limit)
	}
	b.Resize(1000, 20)
	if memory, requests := b.Memory(), b.Requests(); memory != (admission.Usage{Used: 10, Most: 1000}) || requests != (admission.Usage{Used: 1, Most: 20}) {
		t.Errorf("it has %+v and %+v", memory, requests)
	}
}

// Names that are used once leave nothing behind, whether they were refused or not.
func TestAccountsAreBounded(t *testing.T) {
	t.Parallel()
	b := admission.New(1<<30, 1<<30)
	var held admission.Claim // so that others are refused
	held.Open(b, "held", nowhere, 1)
	for i := range 20_000 {
		var c admission.Claim
		c.Open(b, fmt.Sprint("once", i), netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), int64(i%2)<<30)
		c.Close()
	}
	if n := admission.Accounts(b); n > 2*(64*64+64) {
		t.Errorf("%d accounts are kept", n)
	}
}

// A consumer's account is not dropped while it holds something, however many consumers
// there are: it would get its share once more.
func TestAccountInUseIsKept(t *testing.T) {
	t.Parallel()
	b := admission.New(1200, 1<<30)
	held, claims := fill(b, "a", nowhere, 10)
	for i := range 10_000 {
		var other admission.Claim
		if limit := other.Open(b, fmt.Sprint("other", i), nowhere, 0); limit != admission.LimitNone {
			t.Fatalf("refused for %q", limit)
		}
	}
	var small admission.Claim
	small.Open(b, "a", nowhere, 0)
	small.Close()
	if more, _ := fill(b, "a", nowhere, 10); more != 0 {
		t.Errorf("a consumer that holds its share of %d got %d more", held, more)
	}
	closeAll(claims)
}

// A lone request costs no memory.
func TestClaimAllocatesNothing(t *testing.T) {
	b := admission.New(1<<30, 1<<30)
	from := netip.MustParseAddr("192.0.2.1")
	var c admission.Claim
	if n := testing.AllocsPerRun(100, func() {
		c.Open(b, "tenant", from, 100)
		c.Charge(100)
		c.Close()
	}); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}

func BenchmarkClaim(b *testing.B) {
	budget := admission.New(1<<40, 1<<40)
	b.RunParallel(func(p *testing.PB) {
		var c admission.Claim
		for p.Next() {
			c.Open(budget, "tenant", nowhere, 100)
			c.Close()
		}
	})
}

func TestContainerMemory(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  int64
	}{
		"none at all": {nil, 0},
		"version 2, inside a container": {fstest.MapFS{
			"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("536870912\n"),
		}, 512 << 20},
		"version 2, the group above is smaller": {fstest.MapFS{
			"proc/self/cgroup":                                        file("0::/system.slice/retrysafe.service\n"),
			"sys/fs/cgroup/system.slice/memory.max":                   file("1048576\n"),
			"sys/fs/cgroup/system.slice/retrysafe.service/memory.max": file("max\n"),
		}, 1 << 20},
		"version 2, the group's own": {fstest.MapFS{
			"proc/self/cgroup": file("0::/a/b\n"), "sys/fs/cgroup/a/memory.max": file("2097152\n"), "sys/fs/cgroup/a/b/memory.max": file("1048576\n"),
		}, 1 << 20},
		"version 1, beside the group of another controller": {fstest.MapFS{
			"proc/self/cgroup": file("12:cpu,cpuacct:/x\n4:memory:/y\n"),
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": file("1048576\n"), "sys/fs/cgroup/memory/y/memory.limit_in_bytes": file("2097152\n"),
		}, 2 << 20},
		"version 2 without a limit": {fstest.MapFS{
			"proc/self/cgroup": file("0::/a\n"), "sys/fs/cgroup/a/memory.max": file("max\n"),
		}, 0},
		"version 1": {fstest.MapFS{
			"proc/self/cgroup":                           file("12:cpu,cpuacct:/x\n4:memory:/docker/abc\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("268435456\n"), // the container's own group is mounted as the root
		}, 256 << 20},
		"version 1 without a limit": {fstest.MapFS{
			"proc/self/cgroup": file("4:memory:/\n"), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
		}, 0},
		"version 1, the least that is no limit": {fstest.MapFS{
			"proc/self/cgroup": file("4:memory:/\n"), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036853727232\n"),
		}, 0},
		"version 1, a controller whose name is longer": {fstest.MapFS{
			"proc/self/cgroup": file("4:name=memory-test:/x\n"), "sys/fs/cgroup/memory/x/memory.limit_in_bytes": file("1048576\n"),
		}, 0},
		"a limit of nothing in one that counts": {fstest.MapFS{
			"proc/self/cgroup": file("0::/a\n"), "sys/fs/cgroup/a/memory.max": file("0\n"), "sys/fs/cgroup/memory.max": file("1048576\n"),
		}, 1 << 20},
		"nonsense": {fstest.MapFS{
			"proc/self/cgroup": file("nothing\n0::/../..\n"), "sys/fs/cgroup/memory.max": file("many"),
		}, 0},
	} {
		if got := admission.ContainerMemoryIn(c.files); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if admission.MemoryFor(7) != 7 || admission.MemoryFor(0) <= 0 {
		t.Error("a setting is not heeded, or the default is none")
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"192.0.2.1:5000":              "192.0.2.1",
		"[::ffff:192.0.2.1]:5000":     "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:5000": "2001:db8:1:2::",
		"[2001:db8:1:3:ffff::6]:5000": "2001:db8:1:3::",
		"[fe80::1%eth0]:5000":         "fe80::",
		"handoff":                     "invalid IP",
	} {
		if got := admission.AddressOf(remote).String(); got != want {
			t.Errorf("%s: got %s, want %s", remote, got, want)
		}
	}
}

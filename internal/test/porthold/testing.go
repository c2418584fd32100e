package porthold

// A TB is what this package needs of a test or benchmark, a [testing.TB]. Programs
// that are no tests hold ports too, and have nothing of package testing in them.
type TB interface {
	Cleanup(do func())
	Fatal(args ...any)
	Helper()
}

// New returns a port that is held until the test ends. Connections to it are refused
// until the test listens on it.
func New(t TB) *Port {
	t.Helper()
	p, err := Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Release() })
	return p
}

// Lent returns the address of a port that is lent until the test ends: servers that
// the test starts can listen on it, one after the other.
func Lent(t TB) string {
	t.Helper()
	p := New(t)
	if err := p.Lend(); err != nil {
		t.Fatal(err)
	}
	return p.Addr()
}

package ledger

// A Report receives the differences that a comparison finds. [TextReport], [JSONLReport] and
// [HTMLReport] write it, [Each] makes one of a function.
type Report interface {
	// Add is called for each difference, in ascending order of ids, those without an id last. An error ends the comparison.
	Add(d Difference) error
	// End is called once, after the last difference. If the comparison failed, err says why, and the summary is not
	// Complete.
	End(s Summary, err error) error
}

// Each is a report that is a function, called for each difference.
type Each func(Difference) error

// Add implements [Report].
func (f Each) Add(d Difference) error { return f(d) }

// End implements [Report]; it does nothing.
func (f Each) End(Summary, error) error { return nil }

var _ Report = Each(nil)

package model

// What the tests of the check itself need: other variants, a machine without Spin,
// reports of searches that were cut short.
var (
	Search     = search
	FindSpinBy = findSpin
	ReadReport = read
)

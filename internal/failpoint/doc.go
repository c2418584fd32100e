// Package failpoint names points in the program at which a test may kill it, pause it
// or slow it down:
//
//	failpoint.Hit("settle.confirmed")
//
// Only a program that was built with the tag failpoint has them. In any other Hit is
// empty: the compiler removes it, with its name.
//
// The environment says what happens at which point, as a comma-separated list:
//
//	RETRYSAFE_FAILPOINT=settle.confirmed=kill      kill the process, with no warning
//	RETRYSAFE_FAILPOINT=settle.confirmed=kill@3    kill it the third time
//	RETRYSAFE_FAILPOINT=settle.confirmed=pause     block there for ever
//	RETRYSAFE_FAILPOINT=settle.confirmed=50ms      sleep there
//	RETRYSAFE_FAILPOINT=*=note                     log every point
//
// Before it happens, the point is written to standard error: "failpoint
// settle.confirmed".
package failpoint

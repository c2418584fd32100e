// Package failpoint names places inside of the program at which a test may end it,
// stop it or slow it down:
//
//	failpoint.Hit("settle.confirmed")
//
// Only a program that was built with the tag failpoint has them. In any other Hit is
// nothing at all: the compiler removes it, with its name.
//
// What happens where is told by the environment, as a list that commas divide:
//
//	RETRYSAFE_FAILPOINT=settle.confirmed=kill      end the process, with no warning
//	RETRYSAFE_FAILPOINT=settle.confirmed=kill@3    at the third time
//	RETRYSAFE_FAILPOINT=settle.confirmed=pause     stay there for ever
//	RETRYSAFE_FAILPOINT=settle.confirmed=50ms      stay there for so long
//	RETRYSAFE_FAILPOINT=*=note                     say so, at every point
//
// Whatever happens is written to standard error before: "failpoint settle.confirmed".
package failpoint

package admission

import "runtime"

// Processors returns how many processors the process may use. Go may run more goroutines
// than that at the same time.
func Processors() int { return min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) }

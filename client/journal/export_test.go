package journal

import "os"

// OnSync replaces how the journal makes its file durable. It is called before the journal is
// used.
func (f *File) OnSync(sync func(*os.File) error) { f.sync = sync }

package memstore

// Used returns how many records and bytes the store has charged for.
func (s *Store) Used() (records, bytes int64) {
	return s.used.records.Load(), s.used.bytes.Load()
}

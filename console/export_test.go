package console

// CountUpTo sets how many records the groups of pages are counted from. It is for before
// the first request.
func (h *Handler) CountUpTo(n int) { h.pages.Counted = n }

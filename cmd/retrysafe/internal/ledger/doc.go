// Package ledger compares two lists of the same payments, ours and the provider's, and says which of them only one
// side has, which differ, and which are there twice. A charge that only the provider has, or has twice, is one that the
// write path lost; whatever else went wrong, it is found here.
//
// There are few ideas: a [Source] yields entries in the order of their ids, [Compare] walks two of them side by side
// and hands each [Difference] to a [Report]. It keeps one row of each side, so the lists may have any length.
// [CSV] and [JSONL] read sources from files and [Sorted] puts one in order. Both sides may be anything that yields
// entries: a query, a page of an API after the other.
//
// A comparison is exact or it fails. Texts are compared byte by byte and amounts as decimals, never as floats. A row
// that cannot be read, or that is out of order, ends the comparison with an error that has its line; a [Summary] of
// less than everything is never clean.
//
// # Periods
//
// A payment of 23:59 may be booked on the next day on the other side. To judge each payment once and with both sides at
// hand, let the lists reach beyond the period at both ends, an hour or a day, and set [Options.Since] and
// [Options.Until] to the period itself. What only one side has is then reported if it is in the period, and otherwise
// pending: it is for the comparison of its own period.
package ledger

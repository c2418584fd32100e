// Package ledger compares two lists of the same payments, ours and the provider's, and says which of them only one
// side has, which differ, and which are there twice. A charge that only the provider has, or has twice, is one that the
// write path lost; whatever else went wrong, it is found here.
//
// There are few ideas: a [Source] yields the entries of one side in any order, [Compare] loads two of them into a
// temporary SQLite database, joins them there by their ids, and hands each [Difference] to a [Report]. Its memory is
// bounded, so the lists may have any length that the disk holds. [CSV] and [JSONL] read sources from files. A source may
// be anything that yields entries: a query, or the pages of an API one after the other.
//
// A comparison is exact or it fails. Texts are compared byte by byte and amounts as decimals, never as floats. A row
// that cannot be read ends the comparison with an error that has its line; a [Summary] of less than everything is never
// clean.
//
// A row of ours may say that its outcome is not known. It is then neither missing nor different, but unknown, whatever
// the other side has of it.
//
// # Periods
//
// A payment of 23:59 may be booked on the next day on the other side. To judge each payment once and with both sides at
// hand, let the lists reach beyond the period at both ends, an hour or a day, and set [Options.Since] and
// [Options.Until] to the period itself. What only one side has is then reported if it is in the period, and otherwise
// pending: it belongs to the comparison of another period. If the provider's lists end with the period, [Options.Lag]
// moves the period of our rows by as much as the provider may be late.
package ledger

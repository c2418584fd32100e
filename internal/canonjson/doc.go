// Package canonjson writes the canonical form of a JSON text, from which a request's fingerprint is computed: two texts
// with the same meaning have the same canonical form, and two with different meanings never do.
//
// The form is that of RFC 8785 (JCS) except for numbers, which stay exact:
//
//   - No white space.
//   - Members sorted by name, in the order of UTF-16 code units.
//   - Strings escape only what they must: \b \t \n \f \r \" \\ and \u00xx, in lower case, for the other control
//     characters. There is no Unicode normalisation, and names differ in case.
//   - Numbers are decimals, never float64. A number is written as ECMAScript would write it if its numbers had all the
//     digits of the text: without exponent from 1e-6 up to below 1e21, otherwise as d.ddde+x or d.ddde-x; no zeros at
//     the end of a fraction; no negative zero. So 1, 1.0, 1e0 and 10e-1 are all 1, while 9007199254740993 and
//     9007199254740992 differ, although they are the same float64. The form of a number that is the shortest text of a
//     float64 is the form of RFC 8785.
//
// Texts that have no single meaning are errors: anything outside the grammar of RFC 8259, invalid UTF-8, lone surrogates,
// two members of the same name, nesting deeper than [MaxDepth] and exponents of more than 15 digits.
//
// An [Encoder] reads the text once, eight bytes at a time, and writes each token as it will be. Objects whose members
// arrive out of order are put in order when they end, large ones at the end of the text. The time is linear in the length of
// the text, but for the sorting, whatever the text.
package canonjson

package canonjson

// inArray is the base of a container that has no members, and of the document.
const inArray = -1

// parse checks the text in and writes its canonical form to out[o:], except that the members of the objects in e.records
// are not yet in order. It returns the index behind it.
//
// What a token becomes is never longer than the token, except for numbers that shortNumber leaves to longNumber. So out
// has always room for the rest of the text, and parse may copy eight bytes where fewer are needed.
func (e *Encoder) parse(in, out []byte, o int) (int, error) {
	in, out = in[:len(in):len(in)], out[:len(out):len(out)] // one bound to check, not two
	e.members, e.records, e.spans = e.members[:0], e.records[:0], e.spans[:0]
	var seen uint64 // all words of all strings, to know whether there is anything but ASCII
	i := 0
	depth, base := 0, inArray
	for {
		// An element starts here, or a member if base says so.
		c := in[i]
		if c <= ' ' {
			i = skipSpace(in, i)
			c = in[i]
		}
		if base != inArray {
			if c != '"' {
				return 0, ErrInvalid
			}
			start := o
			out[o] = '"'
			var key, bytes uint64
			i, o, key, bytes = copyName(in, out, i+1, o+1)
			seen |= bytes
			if in[i] != '"' || astral(bytes) {
				if i, o, seen = copyRest(in, out, i, o, seen); i < 0 {
					return 0, ErrInvalid
				}
				key = nameKey(out[start+1 : o])
			}
			i++
			o++
			e.members = append(e.members, member{key, start, o})
			c = in[i]
			if c <= ' ' {
				i = skipSpace(in, i)
				c = in[i]
			}
			if c != ':' {
				return 0, ErrInvalid
			}
			out[o] = ':'
			i++
			o++
			c = in[i]
			if c == ' ' { // by far the most frequent white space here
				i++
				c = in[i]
			}
			if c <= ' ' {
				i = skipSpace(in, i)
				c = in[i]
			}
		}
		switch {
		case c == '"':
			out[o] = '"'
			i, o, seen = copyPlain(in, out, i+1, o+1, seen)
			if in[i] != '"' {
				if i, o, seen = copyRest(in, out, i, o, seen); i < 0 {
					return 0, ErrInvalid
				}
			}
			i++
			o++
		case c <= '9':
			p, q := shortNumber(in, out, i, o)
			if q == o {
				var err error
				if p, q, err = e.longNumber(in, out, i, o); err != nil {
					return 0, err
				}
			}
			i, o = p, q
		case c == '{' || c == '[':
			if depth == MaxDepth {
				return 0, ErrDepth
			}
			out[o] = c
			end := c + 2 // the closing bracket, in ASCII
			i++
			o++
			if c = in[i]; c <= ' ' {
				i = skipSpace(in, i)
				c = in[i]
			}
			if c == end {
				out[o] = c
				i++
				o++
				break
			}
			e.bases[depth] = base
			depth++
			base = inArray
			if end == '}' {
				base = len(e.members)
			}
			continue
		case c == 't' && load32(in, i) == 't'|'r'<<8|'u'<<16|'e'<<24:
			copy(out[o:o+4], "true")
			i += 4
			o += 4
		case c == 'f' && load32(in, i+1) == 'a'|'l'<<8|'s'<<16|'e'<<24:
			copy(out[o:o+5], "false")
			i += 5
			o += 5
		case c == 'n' && load32(in, i) == 'n'|'u'<<8|'l'<<16|'l'<<24:
			copy(out[o:o+4], "null")
			i += 4
			o += 4
		default:
			return 0, ErrInvalid
		}
		// A value ends here, and perhaps the containers around it.
		for {
			c := in[i]
			if c <= ' ' {
				i = skipSpace(in, i)
				c = in[i]
			}
			if depth == 0 {
				if i != len(in)-len(padding) || seen&high != 0 && !validUTF8(in) {
					return 0, ErrInvalid
				}
				return o, nil
			}
			out[o] = c
			i++
			o++
			if c == ',' {
				break
			}
			switch {
			case c == '}' && base != inArray:
				if ms := e.members[base:]; !inOrder(out, ms) && !e.reorder(out, o-1, base) {
					return 0, ErrDuplicateName
				}
				e.members = e.members[:base]
			case c == ']' && base == inArray:
			default:
				return 0, ErrInvalid
			}
			depth--
			base = e.bases[depth]
		}
	}
}

package canonjson

import (
	"bytes"
	"strconv"
)

// shortNumber copies a number that is canonical as it stands, except for zeros at the
// end of its fraction, if it has no more than 15 digits before the point and 7 behind.
// It returns the indexes behind it. For any other number it returns o unchanged, and
// longNumber has to copy it.
func shortNumber(in, out []byte, i, o int) (int, int) {
	start := o
	minus := in[i] == '-'
	if minus {
		out[o] = '-'
		i++
		o++
	}
	w := load(in, i)
	store(out, o, w)
	zero := byte(w) == '0'
	n := digits(w)
	i += n
	o += n
	switch {
	case n == 0 || zero && (n > 1 || minus):
		return i, start
	case n == 8:
		w = load(in, i)
		store(out, o, w)
		n = digits(w)
		i += n
		o += n
		if n == 8 {
			return i, start
		}
	}
	c := in[i]
	if c == '.' {
		out[o] = '.'
		i++
		o++
		w = load(in, i)
		store(out, o, w)
		n = digits(w)
		i += n
		o += n
		if n == 0 || n == 8 || zero && uint16(w) == '0'|'0'<<8 { // 0.00 may become an exponent
			return i, start
		}
		for out[o-1] == '0' {
			o--
		}
		if out[o-1] == '.' {
			o--
		}
		c = in[i]
	}
	if c|0x20 == 'e' {
		return i, start
	}
	return i, o
}

// maxExponent is the largest exponent, of the form with one digit before the point.
const maxExponent = 999_999_999_999_999

// longNumber copies any number.
func (e *Encoder) longNumber(in, out []byte, i, o int) (int, int, error) {
	minus := in[i] == '-'
	if minus {
		i++
	}
	n := countDigits(in, i)
	if n == 0 || in[i] == '0' && n > 1 {
		return i, o, ErrInvalid
	}
	all := append(e.digits[:0], in[i:i+n]...)
	point := int64(n) // the number is 0.all times ten to this power
	i += n
	if in[i] == '.' {
		i++
		n = countDigits(in, i)
		if n == 0 {
			return i, o, ErrInvalid
		}
		all = append(all, in[i:i+n]...)
		i += n
	}
	e.digits = all
	huge := false
	if in[i]|0x20 == 'e' {
		i++
		negative := in[i] == '-'
		if negative || in[i] == '+' {
			i++
		}
		n = countDigits(in, i)
		if n == 0 {
			return i, o, ErrInvalid
		}
		exponent := bytes.TrimLeft(in[i:i+n], "0")
		i += n
		huge = len(exponent) > 18 // more than an int64 holds, and than the digits can make up for
		if !huge {
			x := int64(0)
			for _, c := range exponent {
				x = 10*x + int64(c-'0')
			}
			if negative {
				x = -x
			}
			point += x
		}
	}
	ds := bytes.TrimLeft(all, "0")
	point -= int64(len(all) - len(ds))
	ds = bytes.TrimRight(ds, "0")
	if len(ds) == 0 {
		minus, huge, ds, point = false, false, all[:1], 1
	}
	if huge || point-1 > maxExponent || point-1 < -maxExponent {
		return i, o, ErrNumber
	}
	if len(out)-o < len(ds)+maxPoint+len("-0.")+len(in)-i+slack {
		return i, o, errShort
	}
	return i, len(appendDecimal(out[:o], minus, ds, point)), nil
}

// Numbers from 0.000001 to below 1e21 are written without an exponent, as in ECMAScript.
const (
	minPoint = -5
	maxPoint = 21
	zeros    = "000000000000000000000"
)

// appendDecimal appends 0.ds times ten to the power of point. ds neither starts nor ends with a zero unless it is "0".
// Sign, digits and power alone decide what is appended, and it tells them apart.
func appendDecimal(dst []byte, minus bool, ds []byte, point int64) []byte {
	if minus {
		dst = append(dst, '-')
	}
	switch {
	case point < minPoint || point > maxPoint:
		dst = append(dst, ds[0])
		if len(ds) > 1 {
			dst = append(append(dst, '.'), ds[1:]...)
		}
		dst = append(dst, 'e')
		if point > 0 {
			dst = append(dst, '+')
		}
		return strconv.AppendInt(dst, point-1, 10)
	case point <= 0:
		return append(append(append(dst, "0."...), zeros[:-point]...), ds...)
	case point < int64(len(ds)):
		return append(append(append(dst, ds[:point]...), '.'), ds[point:]...)
	default:
		return append(append(dst, ds...), zeros[:point-int64(len(ds))]...)
	}
}

func countDigits(in []byte, i int) int {
	n := i
	for in[n]-'0' <= 9 {
		n++
	}
	return n - i
}

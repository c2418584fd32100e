package canonjson

import "errors"

// Errors returned by [Encoder.Append]. A text with several faults gives one of them.
var (
	ErrInvalid       = errors.New("invalid JSON")
	ErrDuplicateName = errors.New("two members of the same name in a JSON object")
	ErrDepth         = errors.New("JSON nested too deeply")
	ErrNumber        = errors.New("JSON number with too large an exponent")
)

// errShort: out is too small. It does not leave the package.
var errShort = errors.New("short buffer")

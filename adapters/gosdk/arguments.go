package gosdk

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"reflect"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// isAboutArguments reports whether err, which a result of req stands for, is the SDK's complaint of the
// arguments: that they violate the schema, of which only the text tells, or that they don't fit the Go type.
//
// The SDK doesn't tell whether it has called the handler, nor the type. But what it says of a value that doesn't fit
// can be repeated: a part of the arguments must fail in the same way. If the handler has found that, it is a mistake
// in the arguments all the same.
func isAboutArguments(req mcp.Request, err error) bool {
	text := err.Error()
	if strings.HasPrefix(text, `validating "arguments": `) {
		return true
	}

	call, isCall := req.(*mcp.CallToolRequest)
	if !isCall || call.Params == nil {
		return false
	}
	switch e := err.(type) {
	case *json.UnmarshalTypeError:
		return isMismatchOf(e, call.Params.Arguments)
	case *json.SyntaxError:
		return isAboutKey(text, call.Params.Arguments)
	case *syntax.Error:
		return isAboutPattern(e, call.Params.Arguments)
	}
	return isParseErrorOf(err, text, call.Params.Arguments)
}

// isMismatchOf reports whether e is about a part of arguments that can't be unmarshaled. A handler may
// return such an error about anything, but from encoding/json it has an offset, and from the SDK's decoder
// it has none.
func isMismatchOf(e *json.UnmarshalTypeError, arguments json.RawMessage) bool {
	if e.Offset != 0 {
		return false
	}

	var part any
	if json.Unmarshal(arguments, &part) != nil {
		return false
	}
	for name := range strings.SplitSeq(e.Field, ".") {
		var ok bool
		if part, ok = memberOf(part, name); !ok {
			return false
		}
	}
	text, _ := json.Marshal(part) // it can't fail
	return json.Unmarshal(text, reflect.New(e.Type).Interface()) != nil
}

// memberOf returns the member of an object of that name, or of an array at that index.
func memberOf(v any, name string) (member any, ok bool) {
	switch v := v.(type) {
	case map[string]any:
		member, ok = v[name]
	case []any:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(v) {
			return v[i], true
		}
	}
	return member, ok
}

// isAboutKey reports whether text is that of the SDK's decoder about the key of a map, such as a word where the keys
// are numbers. It quotes what it was reading: the end of the key, or the arguments from there on. The errors of
// encoding/json have no such prefix.
func isAboutKey(text string, arguments json.RawMessage) bool {
	said, ok := strings.CutPrefix(text, "json: ")
	if !ok {
		return false
	}

	var decoded any
	if json.Unmarshal(arguments, &decoded) != nil {
		return false
	}
	_, quoted, _ := strings.Cut(said, ": ")
	quoted = strings.TrimSuffix(quoted, "...")
	if quoted == "" {
		return strings.Contains(said, " from an empty input") && slices.Contains(appendLeaves(nil, decoded), any(""))
	}
	read, _ := json.Marshal(decoded) // as the SDK encodes them before; it can't fail
	return strings.Contains(string(read), quoted) || slices.ContainsFunc(appendLeaves(nil, decoded), func(v any) bool {
		key, ok := v.(string)
		return ok && strings.HasSuffix(key, quoted)
	})
}

// isAboutPattern reports whether e is about a regular expression among the arguments. It isn't parsed again, since a
// short one can take long: what e quotes must be a part of it.
func isAboutPattern(e *syntax.Error, arguments json.RawMessage) bool {
	var decoded any
	if json.Unmarshal(arguments, &decoded) != nil {
		return false
	}
	return slices.ContainsFunc(appendLeaves(nil, decoded), func(v any) bool {
		pattern, ok := v.(string)
		if e.Code == syntax.ErrTrailingBackslash { // which it doesn't quote
			return ok && strings.HasSuffix(pattern, `\`)
		}
		return ok && strings.Contains(pattern, e.Expr)
	})
}

// parsers holds the types of the standard library whose values have errors of their own, with a part of their texts.
var parsers = []struct {
	says  string
	parse func(text []byte) error
}{
	{"slog: ", parse[slog.Level]},
	{"math/big: ", parse[big.Int]},
	{"math/big: ", parse[big.Float]},
	{"into a *big.Rat", ratError},
	{"ParseAddr(", parse[netip.Addr]},
	{"ParseAddr(", parse[netip.AddrPort]},
	{"ParsePrefix(", parse[netip.Prefix]},
	{"port", parse[netip.AddrPort]},
	{"invalid IP address: ", parse[net.IP]},
	{"illegal base64 data ", parse[[]byte]},
	{",string struct tag", func(text []byte) error {
		return parse[struct {
			V int `json:",string"`
		}]([]byte(`{"V":` + string(text) + `}`))
	}},
}

func parse[T any](text []byte) error { return json.Unmarshal(text, new(T)) }

// ratError returns what a big.Rat says of a text that doesn't fit. It doesn't find that out, which can take long for
// a short one.
func ratError(text []byte) error {
	var value string
	if json.Unmarshal(text, &value) != nil {
		return nil
	}
	return fmt.Errorf("math/big: cannot unmarshal %q into a *big.Rat", value)
}

// maxValues bounds how many values of the arguments are parsed, and maxLength how long they may be: an agent can make
// them many and long, and the tool's time passes meanwhile.
const (
	maxValues = 100
	maxLength = 1000
)

// isParseErrorOf reports whether err, whose text is given, is what a type of the standard library says of a value, or
// of the key of a map, among the arguments. A type that has no error of its own is left to isMismatchOf.
func isParseErrorOf(err error, text string, arguments json.RawMessage) bool {
	var values []any
	for _, p := range parsers {
		if !strings.Contains(text, p.says) {
			continue
		}
		if values == nil {
			var decoded any
			if json.Unmarshal(arguments, &decoded) != nil {
				return false
			}
			values = appendLeaves([]any{}, decoded)
		}
		for _, v := range values {
			value, _ := json.Marshal(v) // as the SDK encodes it before; it can't fail
			if len(value) > maxLength {
				continue
			}
			if got := p.parse(value); got != nil && reflect.TypeOf(got) == reflect.TypeOf(err) && got.Error() == text {
				return true
			}
		}
	}
	return false
}

// appendLeaves appends the keys and values in v to values that are neither objects nor arrays.
func appendLeaves(values []any, v any) []any {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if len(values) < maxValues {
				values = appendLeaves(append(values, key), inner)
			}
		}
	case []any:
		for _, inner := range v {
			if len(values) < maxValues {
				values = appendLeaves(values, inner)
			}
		}
	default:
		values = append(values, v)
	}
	return values
}

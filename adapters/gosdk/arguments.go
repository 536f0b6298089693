package gosdk

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

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
	if strings.HasPrefix(text, bigPrefix) {
		return isAboutNumber(text, call.Params.Arguments)
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

	var decoded any
	if json.Unmarshal(arguments, &decoded) != nil {
		return false
	}
	return hasPart(decoded, e.Field, func(part any) bool {
		text, _ := json.Marshal(part) // it can't fail
		return json.Unmarshal(text, reflect.New(e.Type).Interface()) != nil
	})
}

// hasPart reports whether f is true of a part of v at path, which consists of keys and indexes with dots between them.
// There may be several such parts, since a key may contain dots, too.
func hasPart(v any, path string, f func(part any) bool) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, part := range v {
			rest, ok := strings.CutPrefix(path, key)
			if ok && isPartAt(part, rest, f) {
				return true
			}
		}
	case []any:
		index, _, _ := strings.Cut(path, ".")
		i, err := strconv.Atoi(index)
		return err == nil && i >= 0 && i < len(v) && isPartAt(v[i], path[len(index):], f)
	}
	return false
}

// isPartAt is hasPart for what is left of the path behind a key or an index, with its dot.
func isPartAt(v any, rest string, f func(part any) bool) bool {
	if rest == "" {
		return f(v)
	}
	path, more := strings.CutPrefix(rest, ".")
	return more && hasPart(v, path, f)
}

// isAboutKey reports whether text is that of the SDK's decoder about the key of a map, such as a word where the keys
// are numbers. It quotes what it was reading: the end of the key, or the arguments from there on. The errors of
// encoding/json have no such prefix.
func isAboutKey(text string, arguments json.RawMessage) bool {
	said, ok := strings.CutPrefix(text, "json: ")
	if !ok {
		return false
	}

	_, quoted, _ := strings.Cut(said, ": ")
	quoted = strings.TrimSuffix(quoted, "...")
	if quoted == "" {
		isEmpty := func(key any) bool { return key == "" }
		return strings.Contains(said, " from an empty input") && hasValue(arguments, isEmpty)
	}
	return strings.Contains(string(reencoded(arguments)), quoted) || hasValue(arguments, func(v any) bool {
		key, ok := v.(string)
		return ok && strings.HasSuffix(key, quoted)
	})
}

// reencoded returns arguments as the SDK encodes them before it decodes them into the Go type, or nil.
func reencoded(arguments json.RawMessage) []byte {
	var decoded any
	if json.Unmarshal(arguments, &decoded) != nil {
		return nil
	}
	text, _ := json.Marshal(decoded) // it can't fail
	return text
}

// isAboutPattern reports whether e is about a regular expression among the arguments. It isn't parsed again, since a
// short one can take long: what e quotes must be a part of it.
func isAboutPattern(e *syntax.Error, arguments json.RawMessage) bool {
	return hasValue(arguments, func(v any) bool {
		pattern, ok := v.(string)
		if e.Code == syntax.ErrTrailingBackslash { // which it doesn't quote
			return ok && strings.HasSuffix(pattern, `\`)
		}
		return ok && strings.Contains(pattern, e.Expr)
	})
}

// isAboutNumber reports whether text, which package big says of a number, quotes one of the arguments. It isn't parsed
// again either: a short big.Rat can take long, and so can a long number.
func isAboutNumber(text string, arguments json.RawMessage) bool {
	quoted, err := strconv.QuotedPrefix(strings.TrimPrefix(text, bigPrefix))
	if err != nil {
		return false
	}
	number, _ := strconv.Unquote(quoted) // it can't fail
	return hasValue(arguments, func(v any) bool {
		text, _ := json.Marshal(v) // as a big.Int has it; it can't fail
		return v == number || string(text) == number
	})
}

// bigPrefix is how an error of package big begins.
const bigPrefix = "math/big: cannot unmarshal "

// parsers holds the other types of the standard library whose values have errors of their own, with how these begin:
// an agent can send many values, and few are parsed for errors that only quote such words of its own.
var parsers = []struct {
	says  string
	parse func(text []byte) error
}{
	{"slog: ", parse[slog.Level]},
	{"parsing time ", parse[time.Time]}, // as a key
	{"ParseAddr(", parse[netip.Addr]},
	{"ParseAddr(", parse[netip.AddrPort]},
	{"netip.ParsePrefix(", parse[netip.Prefix]},
	{"not an ip:port", parse[netip.AddrPort]},
	{"invalid ip:port ", parse[netip.AddrPort]},
	{"invalid port ", parse[netip.AddrPort]},
	{"invalid IP address: ", parse[net.IP]},
	{"illegal base64 data ", parse[[]byte]},
	{"json: invalid use of ,string struct tag", func(text []byte) error {
		return parse[struct {
			V int `json:",string"`
		}]([]byte(`{"V":` + string(text) + `}`))
	}},
}

func parse[T any](text []byte) error { return json.Unmarshal(text, new(T)) }

// isParseErrorOf reports whether err, whose text is given, is what a type of the standard library says of a value, or
// of the key of a map, among the arguments. A type that has no error of its own is left to isMismatchOf.
func isParseErrorOf(err error, text string, arguments json.RawMessage) bool {
	var parses []func(text []byte) error
	for _, p := range parsers {
		if strings.HasPrefix(text, p.says) {
			parses = append(parses, p.parse)
		}
	}
	return len(parses) > 0 && hasValue(arguments, func(v any) bool {
		value, _ := json.Marshal(v) // as the SDK encodes it before; it can't fail
		return slices.ContainsFunc(parses, func(parse func([]byte) error) bool {
			got := parse(value)
			return got != nil && reflect.TypeOf(got) == reflect.TypeOf(err) && got.Error() == text
		})
	})
}

// hasValue reports whether f is true of a key in arguments, or of a value that is neither an object nor an array. It
// looks at all of them, however many an agent sends, as the SDK has done.
func hasValue(arguments json.RawMessage, f func(v any) bool) bool {
	var decoded any
	return json.Unmarshal(arguments, &decoded) == nil && hasValueIn(decoded, f)
}

func hasValueIn(v any, f func(v any) bool) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if f(key) || hasValueIn(inner, f) {
				return true
			}
		}
		return false
	case []any:
		for _, inner := range v {
			if hasValueIn(inner, f) {
				return true
			}
		}
		return false
	}
	return f(v)
}

package gosdk

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// isAboutArguments reports whether err, which a result of req stands for, is the SDK's complaint of the
// arguments: that they violate the schema, of which only the text tells, or that they don't fit the Go type.
func isAboutArguments(req mcp.Request, err error) bool {
	if strings.HasPrefix(err.Error(), `validating "arguments": `) {
		return true
	}

	mismatch, ok := err.(*json.UnmarshalTypeError)
	call, isCall := req.(*mcp.CallToolRequest)
	return ok && isCall && call.Params != nil && isMismatchOf(mismatch, call.Params.Arguments)
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

package gosdk

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// cloneRequest returns a deep copy of req for one attempt. A handler may change its request, and one that
// was abandoned may do so while the next attempt runs.
func cloneRequest(req *mcp.CallToolRequest) *mcp.CallToolRequest {
	clone, params := *req, *req.Params
	params.Meta = cloneMap(params.Meta)
	params.Arguments = slices.Clone(params.Arguments)
	params.InputResponses = cloneResponses(params.InputResponses)
	clone.Params, clone.Extra = &params, cloneExtra(req.Extra)
	return &clone
}

// cloneClientRequest returns a deep copy of req and of its params, to which the SDK and other middleware may
// write. The params must be a *mcp.CallToolParams that isn't nil. It returns req and no params if req isn't a
// request that the SDK or a program can make.
func cloneClientRequest(req mcp.Request) (mcp.Request, *mcp.CallToolParams) {
	params := *req.GetParams().(*mcp.CallToolParams)
	params.Meta = cloneMap(params.Meta)
	params.Arguments = cloneValue(params.Arguments, nil)
	params.InputResponses = cloneResponses(params.InputResponses)
	switch req := req.(type) {
	case *mcp.ClientRequest[mcp.Params]: // the SDK's own
		return &mcp.ClientRequest[mcp.Params]{Session: req.Session, Params: &params}, &params
	case *mcp.ClientRequest[*mcp.CallToolParams]:
		return &mcp.ClientRequest[*mcp.CallToolParams]{Session: req.Session, Params: &params}, &params
	}
	return req, nil
}

func cloneExtra(extra *mcp.RequestExtra) *mcp.RequestExtra {
	if extra == nil {
		return nil
	}

	clone := *extra
	clone.Header = extra.Header.Clone()
	if extra.TokenInfo != nil {
		token := *extra.TokenInfo
		token.Scopes = slices.Clone(token.Scopes)
		token.Extra = cloneMap(token.Extra)
		clone.TokenInfo = &token
	}
	return &clone
}

// cloneResponses copies by JSON, as which a server has received the responses.
func cloneResponses(responses mcp.InputResponseMap) mcp.InputResponseMap {
	if len(responses) == 0 {
		return responses
	}

	clone := maps.Clone(responses)
	var decoded mcp.InputResponseMap
	text, _ := json.Marshal(responses) // an error leaves nothing to decode
	if json.Unmarshal(text, &decoded) != nil {
		return clone
	}
	for id, response := range decoded {
		if reflect.TypeOf(response) == reflect.TypeOf(clone[id]) {
			clone[id] = response
		}
	}
	return clone
}

// cloneMap returns a copy of m in which all maps and slices are new. It leaves what pointers point to, and
// what contains itself.
func cloneMap(m map[string]any) map[string]any { return cloneValue(m, nil).(map[string]any) }

// cloneValue copies a value within the maps and slices at the addresses above.
func cloneValue(value any, above []uintptr) any {
	v := reflect.ValueOf(value)
	if kind := v.Kind(); kind != reflect.Map && kind != reflect.Slice {
		return value
	}
	if v.IsNil() || slices.Contains(above, v.Pointer()) {
		return value
	}
	above = append(above, v.Pointer())

	if object, ok := value.(map[string]any); ok { // most are, and reflection takes longer
		clone := make(map[string]any, len(object))
		for key, inner := range object {
			clone[key] = cloneValue(inner, above)
		}
		return clone
	}
	if v.Kind() == reflect.Map {
		clone := reflect.MakeMapWithSize(v.Type(), v.Len())
		for entry := v.MapRange(); entry.Next(); {
			clone.SetMapIndex(entry.Key(), cloneInner(entry.Value(), above))
		}
		return clone.Interface()
	}
	clone := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	for i := range v.Len() {
		clone.Index(i).Set(cloneInner(v.Index(i), above))
	}
	return clone.Interface()
}

// cloneInner copies what a map or slice holds.
func cloneInner(v reflect.Value, above []uintptr) reflect.Value {
	switch v.Kind() {
	case reflect.Interface, reflect.Map, reflect.Slice:
		if !v.IsNil() {
			return reflect.ValueOf(cloneValue(v.Interface(), above))
		}
	}
	return v
}

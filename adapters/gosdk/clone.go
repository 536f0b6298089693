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
	params.Arguments = cloneValue(params.Arguments)
	params.InputResponses = cloneResponses(params.InputResponses)
	switch req := req.(type) {
	case *mcp.ClientRequest[mcp.Params]: // the SDK's own
		return &mcp.ClientRequest[mcp.Params]{Session: req.Session, Params: &params}, &params
	case *mcp.ClientRequest[*mcp.CallToolParams]:
		return &mcp.ClientRequest[*mcp.CallToolParams]{Session: req.Session, Params: &params}, &params
	}
	return req, nil
}

// cloneNotification returns a copy of req that can be sent while a program changes what it has put into req: the SDK
// sends the parameters of Server.ResourceUpdated to many sessions, and the data of a log message are any value.
func cloneNotification(req mcp.Request) mcp.Request {
	params := reflect.ValueOf(req.GetParams())
	if params.Kind() != reflect.Pointer || params.IsNil() {
		return req
	}

	cloned := reflect.New(params.Type().Elem())
	cloned.Elem().Set(params.Elem())
	own := cloned.Interface().(mcp.Params)
	own.SetMeta(cloneMap(own.GetMeta()))
	//lint:ignore SA1019 servers still log
	if log, ok := own.(*mcp.LoggingMessageParams); ok {
		log.Data = encoded(log.Data)
	}

	clone := reflect.New(reflect.TypeOf(req).Elem())
	clone.Elem().Set(reflect.ValueOf(req).Elem())
	clone.Elem().FieldByName("Params").Set(cloned)
	return clone.Interface().(mcp.Request)
}

// encoded returns data as JSON, unless it is a text. What can't be encoded is the SDK's to tell.
func encoded(data any) any {
	if _, isText := data.(string); isText {
		return data
	}
	text, err := json.Marshal(data)
	if err != nil {
		return data
	}
	return json.RawMessage(text)
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
func cloneMap(m map[string]any) map[string]any { return cloneValue(m).(map[string]any) }

// cloneValue is cloneMap for any value.
func cloneValue(value any) any { return new(path).clone(value) }

// A path consists of the addresses of the maps and slices that are being copied, each within the one before. A list
// is fastest for the few that most have; an agent can send many.
type path struct {
	near  [16]uintptr
	count int // of near
	far   map[uintptr]bool
}

// enter adds an address, and reports whether it is a new one.
func (p *path) enter(address uintptr) bool {
	switch {
	case slices.Contains(p.near[:p.count], address), p.far[address]:
		return false
	case p.count < len(p.near):
		p.near[p.count] = address
		p.count++
	case p.far == nil:
		p.far = map[uintptr]bool{address: true}
	default:
		p.far[address] = true
	}
	return true
}

// leave removes the last address.
func (p *path) leave(address uintptr) {
	if len(p.far) > 0 {
		delete(p.far, address)
	} else {
		p.count--
	}
}

// clone copies a value within those of the path.
func (p *path) clone(value any) any {
	v := reflect.ValueOf(value)
	if kind := v.Kind(); kind != reflect.Map && kind != reflect.Slice {
		return value
	}
	if v.IsNil() || !p.enter(v.Pointer()) {
		return value
	}
	defer p.leave(v.Pointer())

	if object, ok := value.(map[string]any); ok { // most are, and reflection takes longer
		clone := make(map[string]any, len(object))
		for key, inner := range object {
			clone[key] = p.clone(inner)
		}
		return clone
	}
	if v.Kind() == reflect.Map {
		clone := reflect.MakeMapWithSize(v.Type(), v.Len())
		for entry := v.MapRange(); entry.Next(); {
			clone.SetMapIndex(entry.Key(), p.cloneInner(entry.Value()))
		}
		return clone.Interface()
	}
	clone := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	if v.Type().Elem().Kind() == reflect.Uint8 { // a json.RawMessage may have megabytes
		reflect.Copy(clone, v)
		return clone.Interface()
	}
	for i := range v.Len() {
		clone.Index(i).Set(p.cloneInner(v.Index(i)))
	}
	return clone.Interface()
}

// cloneInner copies what a map or slice holds.
func (p *path) cloneInner(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Interface, reflect.Map, reflect.Slice:
		if !v.IsNil() {
			return reflect.ValueOf(p.clone(v.Interface()))
		}
	}
	return v
}

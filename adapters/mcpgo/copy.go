package mcpgo

import (
	"net/http"
	"reflect"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"
)

// copyOf returns a copy of req that shares no maps, no slices, and nothing that its fields point to. Pointers among
// the arguments or in the _meta, which other middleware has put there, stay as they are, and so does what contains
// itself.
func copyOf(req mcp.CallToolRequest) mcp.CallToolRequest {
	new(path).detach(reflect.ValueOf(&req).Elem(), true)
	return req
}

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

// detach replaces the maps and slices in v by copies and, if v is of a type of mcp-go's, what its fields point to.
// It doesn't name the fields of a request, since newer versions of mcp-go have more of them.
func (p *path) detach(v reflect.Value, fields bool) {
	switch v.Kind() {
	case reflect.Struct:
		for i := 0; fields && i < v.NumField(); i++ {
			if field := v.Field(i); field.CanSet() {
				p.detach(field, fields)
			}
		}
	case reflect.Pointer:
		if !fields || v.IsNil() {
			return
		}
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(v.Elem())
		p.detach(out.Elem(), fields)
		v.Set(out)
	case reflect.Interface, reflect.Map, reflect.Slice:
		switch to := v.Addr().Interface().(type) {
		case *any:
			*to = p.copyOfJSON(*to)
		case *map[string]any:
			*to, _ = p.copyOfJSON(*to).(map[string]any)
		case *http.Header:
			*to = to.Clone()
		default:
			p.detachAll(v, fields)
		}
	}
}

// detachAll replaces a map or a slice by a copy.
func (p *path) detachAll(v reflect.Value, fields bool) {
	if v.Kind() == reflect.Interface || v.IsNil() {
		return
	}
	address := v.Pointer() // v is about to be replaced
	if !p.enter(address) {
		return
	}
	defer p.leave(address)
	if v.Kind() == reflect.Map {
		p.detachMap(v, fields)
	} else {
		p.detachSlice(v, fields)
	}
}

func (p *path) detachMap(v reflect.Value, fields bool) {
	out := reflect.MakeMapWithSize(v.Type(), v.Len())
	for entries := v.MapRange(); entries.Next(); {
		value := reflect.New(v.Type().Elem()).Elem()
		value.Set(entries.Value())
		p.detach(value, fields)
		out.SetMapIndex(entries.Key(), value)
	}
	v.Set(out)
}

func (p *path) detachSlice(v reflect.Value, fields bool) {
	out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	reflect.Copy(out, v)
	v.Set(out)
	if kind := v.Type().Elem().Kind(); kind <= reflect.Complex128 || kind == reflect.String {
		return // its elements refer to nothing
	}
	for i := range v.Len() {
		p.detach(v.Index(i), fields)
	}
}

// copyOfJSON returns a deep copy of decoded JSON. It copies other maps and slices too, but nothing by a pointer.
func (p *path) copyOfJSON(v any) any {
	switch v := v.(type) {
	case nil, string, float64, bool:
		return v

	case map[string]any:
		address := reflect.ValueOf(v).Pointer()
		if v == nil || !p.enter(address) {
			return v
		}
		defer p.leave(address)
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = p.copyOfJSON(value)
		}
		return out

	case []any:
		address := reflect.ValueOf(v).Pointer()
		if v == nil || !p.enter(address) {
			return v
		}
		defer p.leave(address)
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = p.copyOfJSON(value)
		}
		return out
	}

	if kind := reflect.TypeOf(v).Kind(); kind != reflect.Map && kind != reflect.Slice {
		return v
	}
	out := reflect.New(reflect.TypeOf(v)).Elem()
	out.Set(reflect.ValueOf(v))
	p.detach(out, false)
	return out.Interface()
}

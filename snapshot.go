package resilience

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

// snapshot returns a copy of what JSON has of v, without more than room of the values in it, or tooMuch if a struct
// has more, and how many values it has copied. The copy shares no memory which v's program may write to meanwhile:
// its JSON can be made while a tool goes on to use the original. It calls no method. What makes its JSON by a
// method of its own is not copied, since only that knows how.
func snapshot(v any, room int) (copied any, values int) {
	c := copier{room: room}
	out := c.copy(reflect.ValueOf(v), 0)
	if c.cut {
		return tooMuch, room
	}
	return out.Interface(), room - c.room
}

// maxBytes is how much of a []byte is copied: its JSON is one string, of which less is shown.
const maxBytes = maxRunes

// maxLinks is how many pointers and interfaces may be around a value: some at each level.
const maxLinks = 4 * maxDepth

type copier struct {
	room  int
	links int  // pointers and interfaces around the value that is copied
	cut   bool // a struct has lost fields; maps and slices may lose their last elements
}

func (c *copier) copy(v reflect.Value, depth int) reflect.Value {
	c.room--
	if depth > maxDepth {
		return reflect.Zero(v.Type()) // it isn't shown
	}
	if marshalsItself(v.Type()) {
		return v
	}

	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			p := reflect.New(v.Type().Elem())
			p.Elem().Set(c.follow(v, depth))
			out.Set(p.Convert(v.Type()))
		}
	case reflect.Interface:
		if !v.IsNil() {
			out.Set(c.follow(v, depth))
		}
	case reflect.Map:
		c.copyMap(out, v, depth)
	case reflect.Slice:
		c.copySlice(out, v, depth)
	case reflect.Array:
		c.copyElements(out, v, depth)
	case reflect.Struct:
		if !mirrors(v.Type()) {
			return v
		}
		c.copyFields(out, v, depth)
	default:
		return v
	}
	return out
}

// follow copies what a pointer or an interface leads to. The two are one value, as they are in JSON.
func (c *copier) follow(v reflect.Value, depth int) reflect.Value {
	c.links++
	defer func() { c.links-- }()
	if c.links > maxLinks { // a pointer may lead to itself
		c.cut = true
		return reflect.Zero(v.Elem().Type())
	}
	c.room++
	return c.copy(v.Elem(), depth)
}

func (c *copier) copyMap(out, v reflect.Value, depth int) {
	if v.IsNil() {
		return
	}

	out.Set(reflect.MakeMap(v.Type()))
	for entries := v.MapRange(); c.room >= 0 && entries.Next(); {
		out.SetMapIndex(entries.Key(), c.copy(entries.Value(), depth+1))
	}
}

func (c *copier) copySlice(out, v reflect.Value, depth int) {
	if v.IsNil() {
		return
	}

	if v.Type().Elem().Kind() == reflect.Uint8 && !marshalsItself(v.Type().Elem()) {
		n := min(v.Len(), maxBytes)
		out.Set(reflect.MakeSlice(v.Type(), n, n))
		reflect.Copy(out, v)
		return
	}
	n := min(v.Len(), max(c.room, 0)+1)
	out.Set(reflect.MakeSlice(v.Type(), n, n))
	c.copyElements(out, v, depth)
}

func (c *copier) copyElements(out, v reflect.Value, depth int) {
	for i := 0; i < out.Len() && c.room >= 0; i++ {
		out.Index(i).Set(c.copy(v.Index(i), depth+1))
	}
}

// copyFields copies what JSON has of a struct: its exported fields, and those of embedded structs.
func (c *copier) copyFields(out, v reflect.Value, depth int) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Tag.Get("json") == "-" {
			continue
		}
		if c.room < 0 {
			c.cut = true
			return
		}

		switch {
		case field.IsExported():
			out.Field(i).Set(c.copy(v.Field(i), depth+1))
		case field.Anonymous && field.Type.Kind() == reflect.Struct:
			c.copyFields(out.Field(i), v.Field(i), depth)
		}
	}
}

// mirrors reports whether a copy of the exported fields has the same JSON as the struct itself: not if it has
// more fields in an embedded pointer, which can't be set, or asks a method whether a field is zero.
func mirrors(t reflect.Type) bool {
	for i := range t.NumField() {
		field := t.Field(i)
		if field.Anonymous && !field.IsExported() && field.Type.Kind() == reflect.Pointer {
			return false
		}
		if strings.Contains(field.Tag.Get("json"), ",omitzero") {
			return false
		}
		if field.Anonymous && field.Type.Kind() == reflect.Struct && !mirrors(field.Type) {
			return false
		}
	}
	return true
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// marshalsItself reports whether encoding/json asks a method of such a value, or of a pointer to it.
func marshalsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t) // has the methods of t, too, unless t is a pointer
	return t.Implements(jsonMarshaler) || t.Implements(textMarshaler) ||
		p.Implements(jsonMarshaler) || p.Implements(textMarshaler)
}

package resilience

import (
	"encoding"
	"encoding/json"
	"reflect"
)

// snapshot returns a copy of v, without more than room of the values in it, that shares no memory which v's
// program may write to meanwhile: the JSON of a copy can be made while a tool goes on to use the original. It
// calls no method. What makes its JSON by a method of its own is not copied, since only that knows how.
func snapshot(v any, room int) any {
	c := copier{room: room}
	return c.copy(reflect.ValueOf(v), 0).Interface()
}

type copier struct{ room int }

func (c *copier) copy(v reflect.Value, depth int) reflect.Value {
	c.room--
	switch {
	case c.room < 0 || depth > maxDepth:
		return reflect.Zero(v.Type())
	case marshalsItself(v.Type()):
		return v
	}

	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			p := reflect.New(v.Type().Elem())
			p.Elem().Set(c.copy(v.Elem(), depth))
			out.Set(p.Convert(v.Type()))
		}
	case reflect.Interface:
		if !v.IsNil() {
			out.Set(c.copy(v.Elem(), depth))
		}
	case reflect.Map:
		c.copyMap(out, v, depth)
	case reflect.Slice:
		if n := min(v.Len(), c.room+1); !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), n, n))
			c.copyElements(out, v, depth)
		}
	case reflect.Array:
		c.copyElements(out, v, depth)
	case reflect.Struct:
		c.copyFields(out, v, depth)
	default:
		return v
	}
	return out
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

func (c *copier) copyElements(out, v reflect.Value, depth int) {
	if kind := v.Type().Elem().Kind(); kind <= reflect.Complex128 || kind == reflect.String {
		c.room -= reflect.Copy(out, v)
		return
	}
	for i := 0; i < out.Len() && c.room >= 0; i++ {
		out.Index(i).Set(c.copy(v.Index(i), depth+1))
	}
}

// copyFields copies what JSON has of a struct: its exported fields, and those of embedded structs.
func (c *copier) copyFields(out, v reflect.Value, depth int) {
	for i := range v.NumField() {
		switch field := v.Type().Field(i); {
		case field.IsExported():
			out.Field(i).Set(c.copy(v.Field(i), depth+1))
		case field.Anonymous && field.Type.Kind() == reflect.Struct:
			c.copyFields(out.Field(i), v.Field(i), depth+1)
		}
	}
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// marshalsItself reports whether encoding/json asks a method of such a value, or of a pointer to it.
func marshalsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonMarshaler) || p.Implements(textMarshaler)
}

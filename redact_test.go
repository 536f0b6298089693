package resilience_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRedactKeys(t *testing.T) {
	for key, sensitive := range map[string]bool{
		"password": true, "Password": true, "PASSWORD": true, "db_password": true, "userPassword1": true, "passwd": true,
		"api_key": true, "apiKey": true, "APIKey": true, "API_KEY": true, "apikey": true, "x-api-key": true, "key": true, "keys": true,
		"token": true, "access.token": true, "tokenB64": true, "idToken": true, "accesstoken": true,
		"secret": true, "clientSecret": true, "SECRETS": true, "auth": true, "Authorization": true, "oauth2": true,
		"credential": true, "aws credentials": true, "cookie": true, "Set-Cookie": true, "JWT": true,
		"keyword": false, "keyboard": false, "monkey": false, "tokenizer": false, "author": false, "authority": false, "secretary": false,
		"passenger": false, "query": false, "": false, "ключ": false, "42": false, "compass": false,
		"dbpassword": true, "idtoken": true, "clientsecret": true, "pass": true, "user_pass": true,
	} {
		out := resilience.Redact(map[string]any{key: "v"})
		if sensitive {
			assert.Equal(t, "[REDACTED]", out[key], "%q", key)
		} else {
			assert.Equal(t, "v", out[key], "%q", key)
		}
	}
}

type loop map[string]any

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("no") }

type fails struct{}

func (fails) MarshalJSON() ([]byte, error) { return nil, errors.New("no") }

func TestRedactValues(t *testing.T) {
	assert.Nil(t, resilience.Redact(nil))
	assert.Equal(t, map[string]any{}, resilience.Redact(map[string]any{}))

	in := map[string]any{
		"n": 1, "f": 1.5, "b": true, "nil": nil, "num": json.Number("12"),
		"token":   map[string]any{"deep": 1},
		"nested":  map[string]any{"apiKey": "a", "name": "b"},
		"list":    []any{map[string]any{"secret": "a"}, "b"},
		"strings": map[string]string{"pwd": "a", "x": "b"},
		"struct": struct {
			Auth string `json:"auth"`
			Name string
		}{"a", "b"},
		"none":   map[string]any(nil),
		"panics": panics{}, "fails": fails{}, "func": func() {},
	}
	before := jsonOf(t, map[string]any{"nested": in["nested"], "list": in["list"]})
	out := resilience.Redact(in)
	assert.Equal(t, map[string]any{
		"n": 1, "f": 1.5, "b": true, "nil": nil, "num": json.Number("12"),
		"token":   "[REDACTED]",
		"nested":  map[string]any{"apiKey": "[REDACTED]", "name": "b"},
		"list":    []any{map[string]any{"secret": "[REDACTED]"}, "b"},
		"strings": map[string]any{"pwd": "[REDACTED]", "x": "b"},
		"struct":  map[string]any{"auth": "[REDACTED]", "Name": "b"},
		"none":    nil,
		"panics":  "[unprintable]", "fails": "[unprintable]", "func": "[unprintable]",
	}, out)
	out["list"].([]any)[1] = "changed"
	out["nested"].(map[string]any)["name"] = "changed"
	assert.Equal(t, before, jsonOf(t, map[string]any{"nested": in["nested"], "list": in["list"]}), "the input is never changed")

	endless := map[string]any{}
	endless["again"] = endless
	assert.Contains(t, jsonOf(t, resilience.Redact(endless)), "[too deep]")
	endless["and again"] = endless // 2^32 values, if one let it
	assert.Contains(t, jsonOf(t, resilience.Redact(endless)), "[too much]")
	large := struct{ ID int64 }{1234567890123456789}
	assert.Contains(t, jsonOf(t, resilience.Redact(map[string]any{"x": large})), "1234567890123456789")
	cycle := loop{}
	cycle["again"] = cycle
	assert.Equal(t, map[string]any{"x": "[unprintable]"}, resilience.Redact(map[string]any{"x": cycle}))
}

func TestRedactCutsLongStrings(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"200":         {strings.Repeat("x", 200), strings.Repeat("x", 200)},
		"201":         {strings.Repeat("x", 201), strings.Repeat("x", 200) + "...[truncated]"},
		"200 by rune": {strings.Repeat("é", 200), strings.Repeat("é", 200)},
		"201 by rune": {strings.Repeat("é", 201), strings.Repeat("é", 200) + "...[truncated]"},
		"not UTF-8":   {strings.Repeat("\xff", 201), strings.Repeat("\xff", 200) + "...[truncated]"},
	} {
		assert.Equal(t, tc.want, resilience.Redact(map[string]any{"s": tc.in})["s"], name)
	}
}

func FuzzRedact(f *testing.F) {
	f.Add(`{"apiKey":"a","list":[{"x":"y"}]}`)
	f.Add(`{"a":{"b":{"password":[1,2,3]}},"long":"` + strings.Repeat("é", 300) + `"}`)
	f.Fuzz(func(t *testing.T, text string) {
		var in map[string]any
		if json.Unmarshal([]byte(text), &in) != nil {
			t.Skip("not an object")
		}
		before := jsonOf(t, in)
		out := resilience.Redact(in)
		require.Equal(t, before, jsonOf(t, in), "input changed")
		require.Len(t, out, len(in))
		requireShort(t, out)
	})
}

func requireShort(t *testing.T, v any) {
	switch v := v.(type) {
	case string:
		require.LessOrEqual(t, utf8.RuneCountInString(v), 200+len("...[truncated]"))
	case map[string]any:
		for _, e := range v {
			requireShort(t, e)
		}
	case []any:
		for _, e := range v {
			requireShort(t, e)
		}
	case float64:
		require.False(t, math.IsNaN(v))
	}
}

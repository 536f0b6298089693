package resilience_test

import (
	"context"
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

func TestRedactHidesValuesBySensitiveWordsInTheirKeys(t *testing.T) {
	words := `password passwords passwd pwd pass passphrase passcode token tokens jwt bearer cookie cookies secret
		secrets key keys apikey apikeys appid authkey masterkey accesskey secretkey privatekey auth authorization
		authentication oauth credential credentials cred creds dbpassword clientsecret idtoken signature`
	keys := strings.Fields(`db_password userPassword1 x-api-key apiKey APIKey API_KEY DBKey APIKeyID SSHKeys key2 2key
		APIkey DBkey my_SSHkey myAWSkeyID access.token tokenB64 idToken oauth2 AWSAuth HTTPAuthHeader AUTHheader
		Set-Cookie`)
	for word := range strings.FieldsSeq(words) {
		keys = append(keys, word, "my_"+word, strings.ToUpper(word), word+"2")
	}
	for _, key := range keys {
		assert.Equal(t, "[REDACTED]", resilience.Redact(map[string]any{key: "v"})[key], "%q", key)
	}
}

func TestRedactKeepsValuesOfOtherKeys(t *testing.T) {
	for _, key := range []string{
		"keyword", "keyboard", "monkey", "tokenizer", "author", "authority", "secretary", "passenger", "compass",
		"query", "", "ключ", "42", "URLs", "IDs", "MONKEY", "HTTPauthor", "Spass",
	} {
		assert.Equal(t, "v", resilience.Redact(map[string]any{key: "v"})[key], "%q", key)
	}
}

type panickingJSON struct{}

func (panickingJSON) MarshalJSON() ([]byte, error) { panic("no") }

type failingJSON struct{}

func (failingJSON) MarshalJSON() ([]byte, error) { return nil, errors.New("no") }

func TestRedactCopiesValuesOfAllKinds(t *testing.T) {
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
		"panics": panickingJSON{}, "fails": failingJSON{}, "func": func() {},
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
	after := jsonOf(t, map[string]any{"nested": in["nested"], "list": in["list"]})
	assert.Equal(t, before, after, "the input is never changed")
}

func TestRedactKeepsLargeNumbers(t *testing.T) {
	large := struct{ ID int64 }{1234567890123456789}
	assert.Contains(t, jsonOf(t, resilience.Redact(map[string]any{"x": large})), "1234567890123456789")
}

// A number that JSON doesn't have must not cost an agent all details.
func TestRedactReplacesWhatJSONHasNoNumberFor(t *testing.T) {
	for _, v := range []any{
		math.NaN(), math.Inf(1), math.Inf(-1), float32(math.Inf(1)), json.Number("x"), json.Number("{}"), 1i,
	} {
		r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", func(context.Context) (int, error) {
			return 0, &resilience.Error{Details: map[string]any{"d": v}}
		}, resilience.Debug(), resilience.Args(map[string]any{"a": []any{v}}))
		assert.Contains(t, jsonOf(t, r.Err), `"arguments":{"a":["[unprintable]"]}`, v)
		assert.Contains(t, jsonOf(t, r.Err), `"d":"[unprintable]"`, v)
	}
}

func TestRedactEndsWithCycles(t *testing.T) {
	endless := map[string]any{}
	endless["again"] = endless
	assert.Contains(t, jsonOf(t, resilience.Redact(endless)), "[too deep]")

	type chain struct{ Next *chain }
	var link chain
	link.Next = &link
	assert.Equal(t, "[unprintable]", resilience.Redact(map[string]any{"x": link})["x"], "it has no JSON")
}

// A value at the 32nd level is shown, and one below isn't, whatever holds them.
func TestRedactShowsValuesOf32Levels(t *testing.T) {
	inMap := func(v any) any { return map[string]any{"x": v} }
	inList := func(v any) any { return []any{v} }
	inStruct := func(v any) any { return struct{ X any }{v} }
	for name, within := range map[string]func(any) any{"maps": inMap, "lists": inList, "structs": inStruct} {
		var v any = "here"
		for range 31 {
			v = within(v)
		}
		assert.Contains(t, jsonOf(t, resilience.Redact(map[string]any{"x": v})), `"here"`, name)
		deeper := jsonOf(t, resilience.Redact(map[string]any{"x": within(v)}))
		assert.NotContains(t, deeper, "here", name)
		assert.Contains(t, deeper, `"[too deep]"`, name)
	}
}

func TestRedactTruncatesLongStrings(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"200 bytes":             {strings.Repeat("x", 200), strings.Repeat("x", 200)},
		"201 bytes":             {strings.Repeat("x", 201), strings.Repeat("x", 200) + "...[truncated]"},
		"200 runes":             {strings.Repeat("é", 200), strings.Repeat("é", 200)},
		"201 runes":             {strings.Repeat("é", 201), strings.Repeat("é", 200) + "...[truncated]"},
		"201 bytes of no runes": {strings.Repeat("\xff", 201), strings.Repeat("\xff", 200) + "...[truncated]"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, resilience.Redact(map[string]any{"s": tc.in})["s"])
		})
	}
}

func TestRedactTruncatesLongKeys(t *testing.T) {
	long := strings.Repeat("é", 200)
	assert.Equal(t, map[string]any{long: "v"}, resilience.Redact(map[string]any{long: "v"}))
	assert.Equal(t,
		map[string]any{long + "...[truncated]": "[REDACTED]"},
		resilience.Redact(map[string]any{long + "_password": "v"}))
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
		require.LessOrEqual(t, len(out), len(in)) // long keys may have the same beginning
		requireShort(t, out)
	})
}

func requireShort(t *testing.T, v any) {
	switch v := v.(type) {
	case string:
		require.LessOrEqual(t, utf8.RuneCountInString(v), 200+len("...[truncated]"))
	case map[string]any:
		for k, e := range v {
			requireShort(t, k)
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

package resilience_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRedactHidesValuesBySensitiveWordsInTheirKeys(t *testing.T) {
	for word, keys := range map[string][]string{
		"password": {
			"password", "Password", "PASSWORD", "db_password", "userPassword1", "dbpassword",
			"passwd", "pass", "user_pass",
		},
		"key": {
			"api_key", "apiKey", "APIKey", "API_KEY", "apikey", "x-api-key", "key", "keys",
			"DBKey", "APIKeyID", "SSHKeys", "key2", "2key", "APIkey", "DBkey", "my_SSHkey", "myAWSkeyID",
		},
		"token": {
			"token", "access.token", "tokenB64", "idToken", "idtoken", "accesstoken", "JWT",
		},
		"secret":     {"secret", "clientSecret", "clientsecret", "SECRETS"},
		"auth":       {"auth", "Authorization", "oauth2", "AWSAuth", "HTTPAuthHeader", "AUTHheader"},
		"credential": {"credential", "aws credentials"},
		"cookie":     {"cookie", "Set-Cookie"},
	} {
		t.Run(word, func(t *testing.T) {
			for _, key := range keys {
				assert.Equal(t, "[REDACTED]", resilience.Redact(map[string]any{key: "v"})[key], "%q", key)
			}
		})
	}
}

func TestRedactKnowsEachSensitiveWord(t *testing.T) {
	for word := range strings.FieldsSeq(`password passwords passwd pwd pass passphrase passcode token tokens jwt bearer cookie
		cookies secret secrets key keys apikey apikeys accesskey secretkey privatekey auth authorization authentication
		oauth credential credentials cred creds dbpassword clientsecret idtoken`) {
		for _, key := range []string{word, "my_" + word, strings.ToUpper(word), word + "2"} {
			assert.Equal(t, "[REDACTED]", resilience.Redact(map[string]any{key: "v"})[key], "%q", key)
		}
	}
}

func TestRedactKeepsValuesOfOtherKeys(t *testing.T) {
	for _, key := range []string{
		"keyword", "keyboard", "monkey", "tokenizer", "author", "authority", "secretary", "passenger", "compass",
		"query", "", "ключ", "42", "URLs", "IDs", "MONKEY", "HTTPauthor", "Spass", "KEYボード",
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

	digits := strings.Repeat("1", 201)
	assert.Equal(t, digits[1:]+"...[truncated]", resilience.Redact(map[string]any{"n": json.Number(digits)})["n"])
	assert.Equal(t, json.Number(digits[1:]), resilience.Redact(map[string]any{"n": json.Number(digits[1:])})["n"])
}

func TestRedactEndsWithCycles(t *testing.T) {
	endless := map[string]any{}
	endless["again"] = endless
	assert.Contains(t, jsonOf(t, resilience.Redact(endless)), "[too deep]")

	endless["and again"] = endless // 2^32 values, without a bound
	assert.Contains(t, jsonOf(t, resilience.Redact(endless)), "[too much]")

	type loop map[string]any // of another type, which is redacted by way of its JSON
	cycle := loop{}
	cycle["again"] = cycle
	type list []any
	within := list{nil}
	within[0] = within
	for name, v := range map[string]any{"a map": cycle, "a list": within} {
		out := jsonOf(t, resilience.Redact(map[string]any{"x": slices.Repeat([]any{v}, 100)}))
		assert.Equal(t, 100, strings.Count(out, "[too deep]"), name)
	}

	type chain struct{ Next *chain }
	var link chain
	link.Next = &link
	assert.Contains(t, jsonOf(t, resilience.Redact(map[string]any{"x": link})), "[too deep]")
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

// A few structs that are too large hide only themselves, and many of them cost no more than a few.
func TestRedactCopiesAFewStructsThatAreTooLarge(t *testing.T) {
	type large struct {
		Many []int
		Name string
	}
	small := map[string]any{"Many": nil, "Name": "n"}
	for structs, want := range map[int][]any{4: {small, "Sunday"}, 5: {"[too much]", "[too much]"}} {
		list := slices.Repeat([]any{large{make([]int, 20_000), "n"}}, structs)
		list = append(list, large{Name: "n"}, weekday(0))
		out := resilience.Redact(map[string]any{"x": list})["x"].([]any)
		assert.Equal(t, append(slices.Repeat([]any{"[too much]"}, structs), want...), out)
	}
}

// A copy of them is made before the tool runs, and no more of it than is shown.
func TestRedactCopiesWhatAToolMayChange(t *testing.T) {
	type embedded struct{ E map[string]int }
	type input struct {
		embedded
		M map[int][]*string
		A [2]any
		B []byte
		n map[string]int
		s struct{ N int }
	}
	word := "a"
	in := input{
		embedded: embedded{map[string]int{"e": 1}}, M: map[int][]*string{1: {&word, nil}}, A: [2]any{1.5, nil},
		B: []byte("b"), n: map[string]int{"n": 1}, s: struct{ N int }{1},
	}
	assert.Equal(t, map[string]any{
		"E": map[string]any{"e": json.Number("1")}, "M": map[string]any{"1": []any{"a", nil}},
		"A": []any{json.Number("1.5"), nil}, "B": "Yg==",
	}, resilience.Redact(map[string]any{"in": in})["in"])

	type upload struct {
		Data   []byte
		Hidden []int `json:"-"`
		Name   string
	}
	assert.Equal(t, "n", resilience.Redact(map[string]any{"a": upload{make([]byte, 20_000), make([]int, 20_000), "n"}})["a"].(map[string]any)["Name"])
	many := make(map[string]string)
	for i := range 20_000 {
		many[fmt.Sprint(i)] = "v"
	}
	out := resilience.Redact(map[string]any{"many": many})
	assert.Contains(t, jsonOf(t, out), "[too much]")
	assert.Less(t, len(out["many"].(map[string]any)), 10_010)
}

// A struct that is cut would show its last fields as empty.
func TestRedactShowsNoStructWithTooManyValues(t *testing.T) {
	type long struct {
		Many []int
		Name string
	}
	type Long long
	many := make([]int, 20_000)
	for name, v := range map[string]any{
		"a struct":            long{many, "n"},
		"one with 10,001":     long{many[:9_999], "n"},
		"an embedded struct":  struct{ long }{long{many, "n"}},
		"an embedded pointer": struct{ *Long }{&Long{many, "n"}},
		"a hidden pointer": struct {
			long
			p *int
		}{long{many, "n"}, nil},
		"one beside a struct with an embedded pointer": struct {
			S struct{ *hiddenBase }
			long
		}{long: long{many, "n"}},
	} {
		assert.Equal(t, "[too much]", resilience.Redact(map[string]any{"a": v})["a"], name)
	}
}

// Values of any type are cut where those of JSON's own types are, and what is left out isn't shown as nothing.
func TestRedactCutsListsOfAnyTypeAlike(t *testing.T) {
	type anything []any
	for n := 9_990; n < 10_010; n++ {
		words, pointers, values := make([]string, n), make([]*string, n), make(anything, n)
		keys := make(map[string]*string, n)
		for i := range n {
			word := fmt.Sprint(i)
			words[i], pointers[i], values[i], keys[word] = word, &word, word, &word
		}
		want := resilience.Redact(map[string]any{"a": words})["a"].([]any)
		assert.Equal(t, min(n, 9_999), len(want))
		for _, v := range []any{pointers, values} {
			same := slices.Equal(want, resilience.Redact(map[string]any{"a": v})["a"].([]any))
			assert.True(t, same, "%d of %T", n, v)
		}
		assert.Equal(t, len(want), len(resilience.Redact(map[string]any{"a": keys})["a"].(map[string]any)), n)
	}

	var array [20_000]*int
	for i := range array {
		array[i] = new(int)
	}
	out := resilience.Redact(map[string]any{"a": array})["a"].([]any)
	assert.Greater(t, len(out), 9_000)
	assert.False(t, slices.Contains(out, nil))
}

// Each of many values that make their own JSON is shown.
func TestRedactShowsListsOfSmallNumbersWithNames(t *testing.T) {
	out := resilience.Redact(map[string]any{"a": make([]weekday, 1000)})["a"]
	assert.Equal(t, slices.Repeat([]any{"Sunday"}, 1000), out)
}

// The copy of a value has the JSON of the value.
func TestRedactCopiesValuesOfUnusualTypes(t *testing.T) {
	h := &handle{n: 7}
	h.self = h
	h.mu.Lock()
	time.AfterFunc(10*time.Millisecond, h.mu.Unlock) // it is in use, and locks itself to make its JSON
	for name, v := range map[string]any{
		"a value with an address": h,
		"a text with an address":  newLabel(7),
		"fields with an address":  &struct{ T, J any }{newLabel(7), &number{7}},
		"fields that have one": &struct {
			L label
			N number
		}{label{n: 7}, number{7}},
		"nothing at all": struct {
			S []string
			M map[string]int
			P *int
			I any
			B []byte
		}{},
		"an embedded number":  struct{ hiddenNumber }{7},
		"an embedded pointer": struct{ *hiddenBase }{&hiddenBase{"r"}},
		"one within another":  struct{ hiddenInner }{hiddenInner{&hiddenBase{"r"}, 1}},
		"omitzero": struct {
			R span `json:",omitzero"`
		}{span{1, true}},
	} {
		assert.JSONEq(t, jsonOf(t, map[string]any{"a": v}), jsonOf(t, resilience.Redact(map[string]any{"a": v})), name)
	}
}

type (
	handle struct {
		mu   sync.Mutex
		self *handle
		n    int
	}
	hiddenNumber int
	hiddenBase   struct{ Repo string }
	hiddenInner  struct {
		*hiddenBase
		N int
	}
	span struct {
		From int
		set  bool
	}
)

func (s span) IsZero() bool { return !s.set }

// A weekday is a byte that says its name.
type weekday uint8

func (d weekday) MarshalText() ([]byte, error) { return []byte(time.Weekday(d).String()), nil }

// A label makes its text at its address, a number its JSON.
type (
	label struct {
		n  int
		at *label // its address; nil if it may have any
	}
	number struct{ n int }
)

func newLabel(n int) *label {
	l := &label{n: n}
	l.at = l
	return l
}

func (l *label) MarshalText() ([]byte, error) {
	if l.at != nil && l.at != l {
		panic("copied")
	}
	return fmt.Append(nil, "label ", l.n), nil
}
func (n *number) MarshalJSON() ([]byte, error) { return json.Marshal(n.n) }

func (h *handle) MarshalJSON() ([]byte, error) {
	if h.self != h {
		panic("copied")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return json.Marshal(h.n)
}

// A pointer that leads to itself has no JSON.
func TestPromise7RedactOfAPointerToItself(t *testing.T) {
	var x any
	x = &x
	assert.Equal(t, "[too much]", resilience.Redact(map[string]any{"x": x})["x"])

	x = 7
	for range 60 {
		inner := x
		x = &inner
	}
	assert.Equal(t, json.Number("7"), resilience.Redact(map[string]any{"x": x})["x"], "this one ends")

	type loop *loop
	var y loop
	y = &y
	assert.Equal(t, "[too much]", resilience.Redact(map[string]any{"x": y})["x"])
}

// What JSON leaves out may be in use elsewhere.
func TestPromise7FieldsThatJSONLeavesOutAreNotTouched(t *testing.T) {
	type shared struct {
		mu    sync.Mutex
		Cache map[int]int
	}
	type input struct {
		Query  string
		Server *shared `json:"-"`
	}
	s := &shared{Cache: map[int]int{}}
	h := resilience.Wrap(newGuard(t, resilience.Config{Debug: true}), "x", func(context.Context, input) (int, error) {
		return 1, nil
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				s.mu.Lock()
				s.Cache[i%1000] = i
				s.mu.Unlock()
			}
		}
	})
	for range 100 { // the race detector sees a single look
		_, err := h(t.Context(), input{"q", s})
		require.NoError(t, err)
	}
	close(stop)
	wg.Wait()
}

// What takes too long goes on beside the tool, but doesn't look at what the tool changes.
func TestPromise7SlowArgumentsAreNotReadWhileTheToolRuns(t *testing.T) {
	type input struct {
		Slow marshaler
		M    map[int]int
	}
	synctest.Test(t, func(t *testing.T) {
		in := input{marshaler{func() { time.Sleep(time.Second) }}, map[int]int{}}
		for i := range 5000 {
			in.M[i] = i
		}
		h := resilience.Wrap(newGuard(t, resilience.Config{Debug: true}), "x", func(_ context.Context, in input) (int, error) {
			for range 30 {
				time.Sleep(100 * time.Millisecond)
				in.M[-1]++ // the race detector sees anyone who reads it
			}
			return 1, nil
		})
		_, err := h(t.Context(), in)
		assert.NoError(t, err)
	})
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

	huge := strings.Repeat("aB", 1<<20)
	r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", func(context.Context) (int, error) {
		return 0, &resilience.Error{Details: map[string]any{huge: 1}}
	}, resilience.Debug(), resilience.Args(map[string]any{huge: 1}))
	assert.Less(t, len(jsonOf(t, r.Err)), 2000)
}

func TestRedactBoundsTheNumberOfValues(t *testing.T) {
	const many = 50_000
	list, object, secrets := make([]any, many), make(map[string]any), make(map[string]any)
	for i := range many {
		list[i] = i
		object[fmt.Sprint(i)] = i
		secrets[fmt.Sprint("key ", i)] = i
	}

	for name, v := range map[string]any{"list": list, "object": object, "secrets": secrets} {
		copied := resilience.Redact(map[string]any{"x": v})["x"]
		assert.Len(t, copied, 10_000, name)
		assert.Contains(t, jsonOf(t, copied), "[too much]", name)
	}

	whole := resilience.Redact(map[string]any{"x": list[:9_999]})["x"]
	assert.Equal(t, list[:9_999], whole, "with the list itself, these are 10,000 values")

	// What a guard adds to the details isn't lost among them.
	r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", func(context.Context) (int, error) {
		return 0, &resilience.Error{Details: object, Err: errBoom}
	}, resilience.Debug())
	assert.Equal(t, "x", r.Err.Details["tool"])
	assert.Equal(t, errBoom.Error(), r.Err.Details["cause"])
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

// A value that has too many others in it costs what it has, also if nothing of it is shown.
func TestRedactOfSharedValuesIsBounded(t *testing.T) {
	row := &struct {
		Cells map[int]int
		Name  string
	}{Cells: map[int]int{}}
	for i := range 20_000 {
		row.Cells[i] = i
	}
	list := make([]any, 10_000)
	for i := range list {
		list[i] = row
	}
	allocs := testing.AllocsPerRun(1, func() { resilience.Redact(map[string]any{"rows": list}) })
	assert.Less(t, allocs, 1e6, "one for each value that is copied, and some")
}

// Nor does what has no JSON, which takes up no room in the result.
func TestRedactCopiesAFewValuesThatHaveNoJSON(t *testing.T) {
	type sum struct {
		Parts []int
		Total float64
	}
	list := slices.Repeat([]any{sum{make([]int, 9_000), math.NaN()}}, 6)
	assert.Equal(t, []any{
		"[unprintable]", "[unprintable]", "[unprintable]", "[unprintable]", "[too much]", "[too much]",
	}, resilience.Redact(map[string]any{"x": list})["x"])
}

// What is thrown away, since it is too much, isn't copied before.
func TestRedactCopiesNoMoreThanItShows(t *testing.T) {
	word := "a"
	keys, array := make(map[int]*string), [200_000]*string{}
	for i := range array {
		keys[i], array[i] = &word, &word
	}
	for name, v := range map[string]any{"map": keys, "array": &array} {
		allocs := testing.AllocsPerRun(1, func() { resilience.Redact(map[string]any{"x": v}) })
		assert.Less(t, allocs, 150_000.0, name)
	}
}

func TestRedactHidesValuesOfKeysThatAreCut(t *testing.T) {
	long := strings.Repeat("ä", 201)
	cut := strings.Repeat("ä", 200) + "...[truncated]"
	assert.Equal(t, map[string]any{cut: "[REDACTED]"}, resilience.Redact(map[string]any{long: "v"}))
	whole := strings.Repeat("ä", 200)
	assert.Equal(t, map[string]any{whole: "v"}, resilience.Redact(map[string]any{whole: "v"}))
}

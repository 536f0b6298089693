package gosdk_test

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the SDK says of arguments helps an agent to correct them.
func TestWhatTheSDKSaysOfArgumentsIsNotHiddenAndCountsAsAMistake(t *testing.T) {
	type item struct {
		Small int8 `json:"small"`
	}
	type arguments struct {
		Number int             `json:"number,omitempty"`
		Time   time.Time       `json:"time,omitzero"`
		List   []item          `json:"list,omitempty"`
		Map    map[string]item `json:"map,omitempty"`
	}
	f := newProtected(t, resilience.Config{}, gosdk.HideErrors(), gosdk.Failure(gosdk.CountErrors))
	schema := json.RawMessage(`{"type":"object","properties":{"number":{"type":["integer","string"]}}}`)
	tool := &mcp.Tool{Name: "x", InputSchema: schema}
	mcp.AddTool(f.server, tool, func(
		context.Context, *mcp.CallToolRequest, arguments,
	) (*mcp.CallToolResult, any, error) {
		t.Error("called")
		return nil, nil, nil
	})
	f.connect("")

	for args, says := range map[string]string{
		`{"number":true}`:                      `validating "arguments"`,
		`{"number":"many"}`:                    "arguments.number of type int",
		`{"number":99999999999999999999}`:      "arguments.number of type int",
		`{"time":"soon"}`:                      "arguments.time of type time.Time",
		`{"list":[{"small":1},{"small":300}]}`: "list.1.small of type int8",
		`{"map":{"a":{"small":300}}}`:          "map.a.small of type int8",
	} {
		res := f.order("x", json.RawMessage(args))
		assert.True(t, res.IsError)
		assert.Contains(t, text(t, res), says)
		assert.NotContains(t, res.Meta, resilience.MetaError)
	}
	assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
}

// picky is a type for which nothing will do.
type picky struct{}

func (*picky) UnmarshalJSON([]byte) error { return errBoom }

// A handler may return an error of the same type about anything else.
func TestMismatchIsOnlyOneOfTheArguments(t *testing.T) {
	small := reflect.TypeFor[int8]()
	for name, tc := range map[string]struct {
		err   *json.UnmarshalTypeError
		shown bool
	}{
		"first":         {&json.UnmarshalTypeError{Field: "list.0", Type: small}, true},
		"last":          {&json.UnmarshalTypeError{Field: "list.1.a", Type: small}, true},
		"that fits":     {&json.UnmarshalTypeError{Field: "fits", Type: small}, false},
		"no index":      {&json.UnmarshalTypeError{Field: "list.a", Type: small}, false},
		"negative":      {&json.UnmarshalTypeError{Field: "list.-1", Type: small}, false},
		"beyond":        {&json.UnmarshalTypeError{Field: "list.2", Type: small}, false},
		"no member":     {&json.UnmarshalTypeError{Field: "none", Type: small}, false},
		"of a number":   {&json.UnmarshalTypeError{Field: "fits.a", Type: small}, false},
		"with a place":  {&json.UnmarshalTypeError{Field: "list.0", Type: small, Offset: 1}, false},
		"no picky one":  {&json.UnmarshalTypeError{Field: "none", Type: reflect.TypeFor[picky]()}, false},
		"with a reason": {&json.UnmarshalTypeError{Field: "list.0", Type: small, Value: "number 300"}, true},
		"a dot":         {&json.UnmarshalTypeError{Field: "a.b", Type: small}, true},
		"more dots":     {&json.UnmarshalTypeError{Field: "a..c", Type: small}, true},
		"all dots":      {&json.UnmarshalTypeError{Field: "...", Type: small}, true},
		"half a key":    {&json.UnmarshalTypeError{Field: "lis", Type: small}, false},
		"a key, more":   {&json.UnmarshalTypeError{Field: "list0", Type: small}, false},
	} {
		t.Run(name, func(t *testing.T) {
			next := func(context.Context, string, mcp.Request) (mcp.Result, error) {
				res := &mcp.CallToolResult{}
				res.SetError(tc.err)
				return res, nil
			}
			for _, arguments := range []string{
				`{"list":[300,{"a":"text"}],"fits":1,"a":{"b":1,"":{"c":2}},"a.b":300,"a.":{"c":300},".":{"":{"":300}}}`,
				`{"list":[300,`, "",
			} {
				call := func(opts ...gosdk.Option) string {
					params := &mcp.CallToolParamsRaw{Name: "x", Arguments: []byte(arguments)}
					res, err := gosdk.Middleware(newGuard(t, resilience.Config{}), opts...)(next)(t.Context(), "tools/call",
						&mcp.CallToolRequest{Params: params})
					require.NoError(t, err)
					return text(t, res.(*mcp.CallToolResult))
				}
				shown := tc.shown && json.Valid([]byte(arguments))
				assert.Equal(t, shown, call(gosdk.HideErrors()) == tc.err.Error(), arguments)
				assert.Equal(t, tc.err.Error(), call(), arguments)
			}
		})
	}
}

package gosdk_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A mistaken is a tool whose argument is of a type that has errors of its own, and arguments that don't fit.
type mistaken struct {
	add  func(*testing.T, *fixture)
	args string
}

func mistakenIn[T any](args string) mistaken {
	return mistaken{args: args, add: func(t *testing.T, f *fixture) {
		tool := &mcp.Tool{Name: "x", InputSchema: json.RawMessage(`{"type":"object"}`)}
		mcp.AddTool(f.server, tool, func(context.Context, *mcp.CallToolRequest, struct {
			V T `json:"v"`
		}) (*mcp.CallToolResult, any, error) {
			t.Error("called")
			return nil, nil, nil
		})
	}}
}

func manyLevels(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":"INFO"`, i)
	}
	return b.String()
}

// The SDK rejects these before it calls the handler, with errors that don't say so.
func TestArgumentsThatATypeRejectsAreAMistake(t *testing.T) {
	type quoted struct {
		N int `json:"n,string"`
	}
	for name, tc := range map[string]mistaken{
		"slog.Level":               mistakenIn[slog.Level](`{"v":"loud"}`),
		"*big.Int":                 mistakenIn[*big.Int](`{"v":"many"}`),
		"*big.Int, a number":       mistakenIn[*big.Int](`{"v":1.50}`),
		"*big.Float":               mistakenIn[*big.Float](`{"v":"much <"}`),
		"*big.Int, in a list":      mistakenIn[[]*big.Int](`{"v":["12","half"]}`),
		"*big.Rat":                 mistakenIn[*big.Rat](`{"v":"cheap, \"or < 1\u00e9\u0001"}`),
		"*big.Rat, by zero":        mistakenIn[*big.Rat](`{"v":"1/0"}`),
		"*big.Rat, a long one":     mistakenIn[*big.Rat](`{"v":"` + strings.Repeat("x", 998) + `"}`),
		"map[string]*big.Rat":      mistakenIn[map[string]*big.Rat](`{"v":{"price":"cheap"}}`),
		"regexp.Regexp":            mistakenIn[regexp.Regexp](`{"v":"a(b"}`),
		"*regexp.Regexp":           mistakenIn[*regexp.Regexp](`{"v":"a[z-a]<\"{"}`),
		"*regexp.Regexp, a repeat": mistakenIn[*regexp.Regexp](`{"v":"a**"}`),
		"*regexp.Regexp, cut off":  mistakenIn[*regexp.Regexp](`{"v":"a\\"}`),
		"*regexp.Regexp, large":    mistakenIn[*regexp.Regexp](`{"v":"((a{100}){100}){100}"}`),
		"*regexp.Regexp, deep":     mistakenIn[*regexp.Regexp](`{"v":"` + strings.Repeat("(", 1200) + `"}`),
		"*regexp.Regexp, a name":   mistakenIn[*regexp.Regexp](`{"v":"(?P<n"}`),
		"netip.Addr":               mistakenIn[netip.Addr](`{"v":"here"}`),
		"netip.AddrPort":           mistakenIn[netip.AddrPort](`{"v":"here:80"}`),
		"netip.AddrPort, 2":        mistakenIn[netip.AddrPort](`{"v":"here"}`),
		"netip.Prefix":             mistakenIn[netip.Prefix](`{"v":"here"}`),
		"net.IP":                   mistakenIn[net.IP](`{"v":"here"}`),
		"[]byte":                   mistakenIn[[]byte](`{"v":"%%%"}`),
		",string":                  mistakenIn[quoted](`{"v":{"n":"many"}}`),
		"map[int]":                 mistakenIn[map[int]string](`{"v":{"a":"b"}}`),
		"map[int], empty":          mistakenIn[map[int]string](`{"v":{"":"b"}}`),
		"map[int], a mark":         mistakenIn[map[int]string](`{"v":{"<":"b"}}`),
		"map[int], quoted":         mistakenIn[map[int]string](`{"v":{"\"":"b"}}`),
		"map[int], control":        mistakenIn[map[int]string](`{"v":{"a\u0001":"b"}}`),
		"map[int], more":           mistakenIn[map[int]string](`{"v":{"1x":"b"}}`),
		"map[int], a sign":         mistakenIn[map[int]string](`{"v":{"-":"b"}}`),
		"map[uint8]": mistakenIn[map[uint8]string](
			`{"v":{"300":"` + strings.Repeat("b", 100) + `"}}`),
		"a long one":           mistakenIn[netip.Addr](`{"v":"` + strings.Repeat("x", 10_000) + `"}`),
		"*big.Int, a long one": mistakenIn[*big.Int](`{"v":"` + strings.Repeat("1", 10_000) + `"}`),
		"*big.Float, long":     mistakenIn[*big.Float](`{"v":"` + strings.Repeat("one ", 1000) + `"}`),
		"the last of many":     mistakenIn[[]netip.Addr](`{"v":[` + strings.Repeat(`"::1",`, 1000) + `"here"]}`),
		"one of many":          mistakenIn[map[string]slog.Level](`{"v":{"verbose":"loud"` + manyLevels(1000) + `}}`),
		"the last key of many": mistakenIn[[]map[netip.Addr]int](
			`{"v":[` + strings.Repeat(`{},`, 1000) + `{"here":1}]}`),
		"map[netip.Addr]":                mistakenIn[map[netip.Addr]string](`{"v":{"here":"b"}}`),
		"map[time.Time]":                 mistakenIn[map[time.Time]string](`{"v":{"soon":"b"}}`),
		"map[string]time.Time, with dot": mistakenIn[map[string]time.Time](`{"v":{"v1.2":"tomorrow"}}`),
		"map[string][]byte, with dots":   mistakenIn[map[string][]byte](`{"v":{"..":1}}`),
		"http.Header, with dots":         mistakenIn[http.Header](`{"v":{"a":["b"],"a.0":["c",2]}}`),
	} {
		t.Run(name, func(t *testing.T) {
			for count, failure := range map[string]gosdk.FailureFunc{
				"known": gosdk.CountKnown, "errors": gosdk.CountErrors, "all": gosdk.CountAll,
			} {
				f := newProtected(t, resilience.Config{}, gosdk.HideErrors(), gosdk.Failure(failure))
				tc.add(t, f)
				f.connect("")
				res := f.order("x", json.RawMessage(tc.args))
				assert.True(t, res.IsError)
				assert.NotContains(t, text(t, res), "TOOL_FAILED", count)
				assert.NotContains(t, res.Meta, resilience.MetaError, count)
				assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures, count)
			}
		})
	}
}

// A color is a type of a tool's author.
type color struct{}

func (*color) UnmarshalText(text []byte) error {
	return resilience.MarkInvalid(fmt.Errorf("no color: %s", text))
}

func TestArgumentsThatATypeOfTheAuthorsRejects(t *testing.T) {
	f := newProtected(t, resilience.Config{}, gosdk.Failure(gosdk.CountErrors))
	tc := mistakenIn[color](`{"v":"loud"}`)
	tc.add(t, f)
	f.connect("")
	assert.Equal(t, "no color: loud", text(t, f.order("x", json.RawMessage(tc.args))))
	assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
}

// complaintOf returns what the SDK says of the arguments.
func complaintOf(t *testing.T, tc mistaken) (complaint error) {
	f := newProtected(t, resilience.Config{}, gosdk.Failure(
		func(_ context.Context, _ mcp.Request, res *mcp.CallToolResult) error {
			complaint = res.GetError()
			return nil
		}))
	tc.add(t, f)
	f.connect("")
	f.order("x", json.RawMessage(tc.args))
	require.Error(t, complaint)
	return complaint
}

// patternError returns what package regexp says of a pattern.
func patternError(pattern string) error {
	_, err := regexp.Compile(pattern)
	return err
}

// A handler meets the same errors in what its backend says.
func TestErrorAboutSomethingElseThanTheArguments(t *testing.T) {
	const unlike = `{"a":"here","b":["%ab",1,null,true],"c":{"d":"many"}}`
	_, base64Error := base64.StdEncoding.DecodeString("abc%")
	_, addrError := netip.ParseAddr("there")
	var level slog.Level
	levelError := level.UnmarshalText([]byte("loud"))
	for name, tc := range map[string]struct {
		args string
		err  error
	}{
		"another place":      {unlike, base64Error},
		"another address":    {unlike, addrError},
		"another level":      {unlike, levelError},
		"another pattern":    {unlike, patternError("(")},
		"a pattern cut off":  {unlike, patternError(`a\`)},
		"a pattern, no JSON": {`{"a":"("`, patternError("(")},
		"another ratio":      {unlike, new(big.Rat).UnmarshalText([]byte("there"))},
		"another type":       {unlike, errors.New(`ParseAddr("here"): unable to parse IP`)},
		"no such arguments":  {``, addrError},
		"broken arguments":   {`{"a":"there"`, addrError},
		"broken JSON":        {unlike, json.Unmarshal([]byte("<html>"), new(any))},
		"another key":        {unlike, complaintOf(t, mistakenIn[map[int]int](`{"v":{"there":1}}`))},
		"an empty key":       {unlike, complaintOf(t, mistakenIn[map[int]int](`{"v":{"":1}}`))},
		"a key, no JSON":     {`{"there":`, complaintOf(t, mistakenIn[map[int]int](`{"v":{"there":1}}`))},
		"another number":     {unlike, new(big.Int).UnmarshalText([]byte("there"))},
		"a number, no JSON":  {`{"a":"there"`, new(big.Int).UnmarshalText([]byte("there"))},
		"like one of big's":  {unlike, errors.New("math/big: cannot unmarshal here")},
	} {
		t.Run(name, func(t *testing.T) {
			next := func(context.Context, string, mcp.Request) (mcp.Result, error) {
				res := &mcp.CallToolResult{}
				res.SetError(tc.err)
				return res, nil
			}
			g := newGuard(t, resilience.Config{})
			_, err := gosdk.Middleware(g, gosdk.Failure(gosdk.CountErrors))(next)(t.Context(), "tools/call",
				&mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "x", Arguments: []byte(tc.args)}})
			assert.NoError(t, err)
			assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
		})
	}
}

package mcpgo_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// complaint returns mcp-go's complaint about an argument, as long as is asked for.
func complaint(length int) string {
	const begin, end = `argument "`, `" is not a string`
	return begin + strings.Repeat("n", length-len(begin)-len(end)) + end
}

func withError(res *mcp.CallToolResult, err error) *mcp.CallToolResult {
	mcpgo.SetError(res, err)
	return res
}

func TestMeaningOfAResult(t *testing.T) {
	const permanent, invalid, transient = resilience.ClassPermanent, resilience.ClassInvalid, resilience.ClassTransient
	const nothing = "the tool returned a result with isError"
	missing := mcp.NewTextContent(`required argument "x" not found`)
	image := mcp.NewImageContent("aGk=", "image/png")
	tail := mcp.NewTextContent("and more")
	result := func(content ...mcp.Content) *mcp.CallToolResult {
		return &mcp.CallToolResult{IsError: true, Content: content}
	}
	failed := func(text string) *mcp.CallToolResult { return result(mcp.NewTextContent(text)) }
	plain, errUnknown := failed("no luck"), errors.New("unknown")

	for name, tc := range map[string]struct {
		failure mcpgo.FailureFunc
		result  *mcp.CallToolResult
		class   resilience.Class
		text    string
	}{
		"known, its text":            {mcpgo.CountKnown, plain, transient, "no luck"},
		"known, nothing to read":     {mcpgo.CountKnown, result(), transient, nothing},
		"known, an empty text":       {mcpgo.CountKnown, failed(""), transient, nothing},
		"known, an image":            {mcpgo.CountKnown, result(image), transient, nothing},
		"known, several":             {mcpgo.CountKnown, result(plain.Content[0], image, &tail), transient, "no luck\nand more"},
		"known, an argument":         {mcpgo.CountKnown, result(missing), invalid, missing.Text},
		"known, by a pointer":        {mcpgo.CountKnown, result(&missing), invalid, missing.Text},
		"known, an argument, quoted": {mcpgo.CountKnown, result(missing, tail), transient, missing.Text + "\nand more"},
		"known, not bound":           {mcpgo.CountKnown, failed("failed to bind arguments: x"), invalid, "failed to bind arguments: x"},
		"known, a long complaint":    {mcpgo.CountKnown, failed(complaint(1024)), invalid, complaint(1024)},
		"known, a longer complaint":  {mcpgo.CountKnown, failed(complaint(1025)), transient, complaint(1025)[:1024] + "…"},
		"known, a long text":         {mcpgo.CountKnown, failed(strings.Repeat("ä", 513)), transient, strings.Repeat("ä", 512) + "…"},
		"known, cut in a letter":     {mcpgo.CountKnown, failed("x" + strings.Repeat("ä", 512)), transient, "x" + strings.Repeat("ä", 511) + "…"},
		"known, SetError instead": {
			mcpgo.CountKnown, withError(result(missing), errBackend), transient, errBackend.Error(),
		},
		"known, SetError": {mcpgo.CountKnown, failedResult(os.ErrNotExist), invalid, os.ErrNotExist.Error()},

		"known, SetError, an argument": {mcpgo.CountKnown, failedResult(errors.New(missing.Text)), invalid, missing.Text},
		"errors, SetError, a wrapped argument": {
			mcpgo.CountErrors, failedResult(fmt.Errorf("no %w", errors.New(missing.Text))), invalid, "no " + missing.Text,
		},
		"all, SetError, a joined argument": {
			mcpgo.CountAll, failedResult(fmt.Errorf("%w: %w", errUnknown, errors.New(missing.Text))), transient,
			errUnknown.Error() + ": " + missing.Text,
		},
		"all, SetError, an argument": {mcpgo.CountAll, failedResult(errors.New(missing.Text)), invalid, missing.Text},
		"errors, SetError, an argument": {
			mcpgo.CountErrors, failedResult(errors.New(missing.Text)), invalid, missing.Text,
		},
		"all, SetError, the backend's": {
			mcpgo.CountAll, failedResult(resilience.MarkBackend(errors.New(missing.Text))), transient, missing.Text,
		},

		"all, its text":         {mcpgo.CountAll, plain, transient, "no luck"},
		"all, an argument":      {mcpgo.CountAll, result(missing), invalid, missing.Text},
		"all, SetError":         {mcpgo.CountAll, failedResult(os.ErrNotExist), invalid, os.ErrNotExist.Error()},
		"errors, its text":      {mcpgo.CountErrors, plain, resilience.ClassNeutral, "no luck"},
		"errors, SetError":      {mcpgo.CountErrors, failedResult(errUnknown), transient, errUnknown.Error()},
		"errors, the caller's":  {mcpgo.CountErrors, failedResult(os.ErrNotExist), invalid, os.ErrNotExist.Error()},
		"none, its text":        {mcpgo.CountNone, plain, resilience.ClassNeutral, "no luck"},
		"none, SetError":        {mcpgo.CountNone, failedResult(errBackend), resilience.ClassNeutral, errBackend.Error()},
		"known, a hopeless one": {mcpgo.CountKnown, failedResult(resilience.MarkPermanent(errUnknown)), permanent, errUnknown.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.failure(t.Context(), request("x", nil, nil), tc.result)
			assert.EqualError(t, err, tc.text)
			assert.Equal(t, tc.class, resilience.Classify(err))
		})
	}
}

func TestSetErrorIsTheErrorItself(t *testing.T) {
	for _, failure := range []mcpgo.FailureFunc{mcpgo.CountKnown, mcpgo.CountAll, mcpgo.CountErrors, mcpgo.CountNone} {
		assert.ErrorIs(t, failure(t.Context(), request("x", nil, nil), failedResult(errBackend)), errBackend)
	}
	res := failedResult(errBackend)
	assert.Equal(t, errBackend, mcpgo.CountKnown(t.Context(), request("x", nil, nil), res))
}

// A FailureFunc may meet a result that it doesn't expect, as one without content.
func TestFailureFuncThatPanicsHasSaidNothing(t *testing.T) {
	marked := failedResult(errBackend)
	marked.Content = []mcp.Content{mcp.ImageContent{}}
	for name, tc := range map[string]struct {
		res     *mcp.CallToolResult
		items   int // of the content
		counted int
	}{
		"nothing is known":     {res: &mcp.CallToolResult{IsError: true, StructuredContent: "no such row"}},
		"the backend's, by us": {res: marked, items: 2, counted: 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{})
			res, err := mcpgo.Middleware(g, mcpgo.Failure(
				func(_ context.Context, _ mcp.CallToolRequest, res *mcp.CallToolResult) error {
					return errors.New(res.Content[0].(mcp.TextContent).Text)
				}))(returns(tc.res, nil))(t.Context(), request("x", nil, nil))
			require.NoError(t, err)
			assert.Equal(t, tc.res.StructuredContent, res.StructuredContent, "the tool's own answer stands")
			assert.Len(t, res.Content, tc.items)
			assert.Equal(t, tc.counted, failures(t, g, "x"))
		})
	}
}

// The words of a tool's author are the tool's, too.
func TestSecretsInTheWordsOfAnAuthorAreReplaced(t *testing.T) {
	const dsn = "postgres://app:hunter2@db.internal/app"
	own := &resilience.Error{Code: resilience.CodeToolFailed, Message: "can't query " + dsn, Suggestion: "see " + dsn}
	for name, handler := range map[string]server.ToolHandlerFunc{
		"an error": returns(nil, own), "SetError": returns(failedResult(own), nil),
	} {
		t.Run(name, func(t *testing.T) {
			res, err := mcpgo.Middleware(newGuard(t, resilience.Config{}))(handler)(t.Context(), request("x", nil, nil))
			require.NoError(t, err)
			assert.Equal(t, "see postgres://[REDACTED]@db.internal/app", errorIn(t, res).Suggestion)
			assert.NotContains(t, errorIn(t, res).Message, "hunter2")
			assert.NotContains(t, text(t, res), "hunter2")
		})
	}
}

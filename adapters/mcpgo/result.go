package mcpgo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/seed8d1e2389/resilience"
)

var (
	errNoResult = errors.New("the tool returned neither a result nor an error")
	errHidden   = errors.New("the tool returned a result with a hidden error")
)

// SetError sets the error for which a failed result stands, so that the guard finds out whose fault the failure was. It
// sets res.IsError, and the text of err as the content if there is none. It does nothing if res or err is nil. The
// error waits in the result's _meta, of which a client reads null if no guard removes it.
func SetError(res *mcp.CallToolResult, err error) {
	if res == nil || err == nil {
		return
	}

	res.IsError = true
	if len(res.Content) == 0 {
		res.Content = []mcp.Content{mcp.NewTextContent(err.Error())}
	}
	setMeta(res, resilience.MetaError, &settled{err})
}

// settled is the error that SetError leaves in the metadata of a result.
type settled struct{ err error }

// MarshalJSON keeps the text of the error from clients.
func (*settled) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// setError returns the error that was set by SetError, nil if there is none.
func setError(res *mcp.CallToolResult) error {
	if res.Meta != nil {
		if s, ok := res.Meta.AdditionalFields[resilience.MetaError].(*settled); ok {
			return s.err
		}
	}
	return nil
}

// setMeta replaces a value in the _meta of res, or removes it if v is nil. It copies the _meta.
func setMeta(res *mcp.CallToolResult, key string, v any) {
	var meta mcp.Meta
	if res.Meta != nil {
		meta = *res.Meta
	}
	meta.AdditionalFields = maps.Clone(meta.AdditionalFields)
	if meta.AdditionalFields == nil {
		meta.AdditionalFields = make(map[string]any)
	}
	if v == nil {
		delete(meta.AdditionalFields, key)
	} else {
		meta.AdditionalFields[key] = v
	}
	res.Meta = &meta
}

// errorOf returns the error of a result with isError: the one of SetError, or the one that its text means.
func errorOf(res *mcp.CallToolResult) error {
	if err := setError(res); err != nil {
		return err
	}

	var texts []string
	for _, c := range res.Content {
		if text := textIn(c); text != nil {
			texts = append(texts, text.Text)
		}
	}
	return resilience.ResultError(strings.Join(texts, "\n"))
}

// textIn returns the text item that c is, nil if it is none. mcp.AsTextContent knows no pointers.
func textIn(c mcp.Content) *mcp.TextContent {
	switch c := c.(type) {
	case mcp.TextContent:
		return &c
	case *mcp.TextContent:
		return c
	}
	return nil
}

// argumentError matches mcp-go's own complaints about arguments that a tool can't use, which may have any name. The
// tool may put its own words before them.
var argumentError = regexp.MustCompile(`^failed to bind arguments: |(^|: |\n)(required argument ".*" not found` +
	`|(item \d+ in )?argument ".*" (is not an?|cannot be converted to) [a-z0-9 ]+)$`)

// markArguments marks err as the caller's mistake if it is such a complaint.
func markArguments(err error) error {
	if argumentError.MatchString(err.Error()) {
		return resilience.MarkInvalid(err)
	}
	return err
}

// urlElicitation returns the error in err's chain that mcp-go turns into a request to the user, or nil.
func urlElicitation(err error) error {
	var value mcp.URLElicitationRequiredError
	var pointer *mcp.URLElicitationRequiredError
	switch {
	case errors.As(err, &value):
		return value
	case errors.As(err, &pointer) && pointer != nil:
		return pointer
	}
	return nil
}

// needsInput reports whether a result asks for elicitation, which is possible since mcp-go v1.0.
func needsInput(res any) bool {
	r, ok := res.(interface{ NeedsInput() bool })
	return ok && r.NeedsInput()
}

// checkJSON returns an error if res can't be encoded, for example because of a NaN. mcp-go would leave the call without
// an answer. It panics where a method of a value does.
func checkJSON(res *mcp.CallToolResult) error {
	isText := func(c mcp.Content) bool {
		text, ok := c.(mcp.TextContent)
		return ok && text.Meta == nil && text.Annotations == nil
	}
	hasRest := res.StructuredContent != nil || res.Meta != nil || needsInput(res)
	if !hasRest && !slices.ContainsFunc(res.Content, func(c mcp.Content) bool { return !isText(c) }) {
		return nil // as most results are
	}

	if _, err := json.Marshal(res); err != nil {
		return fmt.Errorf("the result is no JSON: %w", err)
	}
	return nil
}

// failedResult returns a copy of the tool's own failed result, without the secrets in its texts, and with e, which may
// be nil, if that says more than the tool does: in the _meta, and what a model needs of it as one more line of content.
func failedResult(g *resilience.Guard, res *mcp.CallToolResult, e *resilience.Error) *mcp.CallToolResult {
	out := *res
	out.Content = slices.Clone(res.Content)
	for i, c := range out.Content {
		if text := textIn(c); text != nil {
			clean := *text
			clean.Text = g.Scrub(text.Text)
			out.Content[i] = clean
		}
	}

	switch {
	case e.HasGuidance():
		setMeta(&out, resilience.MetaError, e)
		if line := e.Line(true); line != "" {
			out.Content = append(out.Content, mcp.NewTextContent(line))
		}
	case setError(res) != nil:
		setMeta(&out, resilience.MetaError, nil)
	}
	return &out
}

// joinedResult returns a copy of the result of an earlier call, with a line that says so.
func joinedResult(res *mcp.CallToolResult, line string) *mcp.CallToolResult {
	out := *res
	out.Content = append(slices.Clip(res.Content), mcp.NewTextContent(line))
	setMeta(&out, resilience.MetaJoined, true)
	return &out
}

// errorResult returns the result of a call for which the tool returned none.
func errorResult(ctx context.Context, name string, e *resilience.Error) *mcp.CallToolResult {
	res := mcp.NewToolResultError(e.Line(false))
	setMeta(res, resilience.MetaError, e)

	tool := lookUp(ctx, name)
	if tool != nil && tool.OutputSchema.Type == "" && tool.RawOutputSchema == nil {
		res.StructuredContent = e
	}
	return res
}

// scrubbedError returns the error of a, or one around it without the secrets in its text.
func (a answer) scrubbedError(g *resilience.Guard) error {
	if clean := g.Scrub(a.text); clean != a.text {
		return &scrubbedError{a.err, clean}
	}
	return a.err
}

type scrubbedError struct {
	error
	text string
}

func (e *scrubbedError) Error() string { return e.text }
func (e *scrubbedError) Unwrap() error { return e.error }

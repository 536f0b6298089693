package mcpgo

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"regexp"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/seed8d1e2389/resilience"
)

var (
	errTool     = errors.New("the tool returned a result with isError")
	errNoResult = errors.New("the tool returned neither a result nor an error")
)

// argumentError matches mcp-go's own complaints about arguments that a tool can't use.
var argumentError = regexp.MustCompile(`^(?:failed to bind arguments: ` +
	`|required argument "[\w.-]+" not found$` +
	`|(?:item \d+ in )?argument "[\w.-]+" (?:is not an?|cannot be converted to) ` +
	`(?:string|int|integer|float|float64|number|bool|boolean|array|object` +
	`|string slice|int slice|float64 slice|bool slice|slice)$)`)

// defaultFailure is the default of the option Failure.
func defaultFailure(res *mcp.CallToolResult) error {
	if len(res.Content) == 1 {
		if text, ok := mcp.AsTextContent(res.Content[0]); ok && argumentError.MatchString(text.Text) {
			return resilience.MarkInvalid(errTool)
		}
	}
	return errTool
}

// handlerError returns the error of a handler for the guard. It marks those errors that
// aren't a failure of the tool.
func handlerError(err error) error {
	switch {
	case urlElicitation(err) != nil:
		return resilience.MarkInvalid(errors.Join(resilience.ErrUnfinished, err))
	case errors.Unwrap(err) == nil && argumentError.MatchString(err.Error()):
		return resilience.MarkInvalid(err)
	}
	return err
}

// answerOfError returns the answer that a handler's error is.
func answerOfError(ctx context.Context, err error) answer {
	var own *resilience.Error
	if !isBounded(err) || errors.As(err, &own) || timedOut(ctx, err) {
		return answer{}
	}
	return answer{err: err}
}

// timedOut reports whether err says no more than that the timeout of ctx, a guarded call's, has passed.
func timedOut(ctx context.Context, err error) bool {
	end, ok := context.Cause(ctx).(*resilience.Error)
	return ok && end.Code == resilience.CodeTimeout && errors.Is(err, context.DeadlineExceeded)
}

// urlElicitation returns the error in err's chain that mcp-go turns into a request to the
// user, or nil.
func urlElicitation(err error) error {
	if !isBounded(err) {
		return nil
	}

	var value mcp.URLElicitationRequiredError
	if errors.As(err, &value) {
		return value
	}

	var pointer *mcp.URLElicitationRequiredError
	if errors.As(err, &pointer) && pointer != nil {
		return *pointer
	}
	return nil
}

// isBounded reports whether errors.As comes to an end with err: a tool's error may wrap itself. The
// resilience package looks at a bounded number of errors, and replaces an error that wraps more than
// those.
func isBounded(err error) bool {
	_, kept := resilience.AsError("", examined{err}).Err.(examined)
	return kept
}

type examined struct{ error }

func (e examined) Unwrap() error { return e.error }

// needsInput reports whether a result asks for elicitation, which is possible since mcp-go v1.0.
func needsInput(res any) bool {
	r, ok := res.(interface{ NeedsInput() bool })
	return ok && r.NeedsInput()
}

// withErrorMetadata returns a copy of res with e in its _meta.
func withErrorMetadata(res *mcp.CallToolResult, e *resilience.Error) *mcp.CallToolResult {
	meta := mcp.Meta{}
	if res.Meta != nil {
		meta = *res.Meta
	}

	meta.AdditionalFields = maps.Clone(meta.AdditionalFields)
	if meta.AdditionalFields == nil {
		meta.AdditionalFields = make(map[string]any)
	}
	meta.AdditionalFields[resilience.MetaError] = e

	out := *res
	out.Meta = &meta
	return &out
}

// errorResult returns the result of a call for which the tool returned none.
func errorResult(ctx context.Context, name string, e *resilience.Error) *mcp.CallToolResult {
	text, _ := json.Marshal(e) // it never fails
	res := withErrorMetadata(mcp.NewToolResultError(string(text)), e)

	tool := lookUp(ctx, name)
	if tool != nil && tool.OutputSchema.Type == "" && tool.RawOutputSchema == nil {
		res.StructuredContent = e
	}
	return res
}

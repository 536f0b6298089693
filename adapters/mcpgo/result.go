package mcpgo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/seed8d1e2389/resilience"
)

var (
	errNoResult = errors.New("the tool returned neither a result nor an error")
	errResult   = errors.New("the tool returned a result with isError")
)

// argumentError matches mcp-go's own complaints about arguments that a tool can't use, which may have any name. A tool
// may put words of its own before them.
var argumentError = regexp.MustCompile(`^(?s:.*: )?(?:required argument ` + quotedName + ` not found` +
	`|(?:item \d+ in )?argument ` + quotedName + ` (?:is not an?|cannot be converted to) ` +
	`(?:string|int|integer|float|float64|number|bool|boolean|array|object` +
	`|string slice|int slice|float64 slice|bool slice|slice))$`)

// quotedName matches what the verb %q of package fmt makes of a name.
const quotedName = `"(?:[^"\\\n]|\\.)*"`

// isArgumentError reports whether text is such a complaint. A long one only begins like one.
func isArgumentError(text string) bool {
	return strings.HasPrefix(text, "failed to bind arguments: ") ||
		len(text) <= maxErrorText && argumentError.MatchString(text)
}

// markType is the type of all that is marked by the resilience package.
var markType = reflect.TypeOf(resilience.MarkNeutral(errNoResult))

// isAboutArguments reports whether err is such a complaint, alone or wrapped by the handler. What the tool's author
// says of it by a mark of the resilience package's, or by a *resilience.Error, stands, and so does what it is joined
// with.
func isAboutArguments(err error) bool {
	var own *resilience.Error
	if errors.As(err, &own) {
		return false
	}

	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		_, joins := inner.(interface{ Unwrap() []error })
		if joins || reflect.TypeOf(inner) == markType {
			return false
		}
		err = inner
	}
	return isArgumentError(err.Error())
}

// SetError tells the guard for which error a failed result stands, so that it knows whose fault the
// failure was. It sets res.IsError, and the text of err as the content if there is none. It does
// nothing if res or err is nil.
//
// Without a guard, the client finds a resilience.Error in the result's _meta, without Details and the text of err. It
// is what a guard would say of the error of a tool whose effect isn't known: a suggestion that isn't the tool's own
// recommends no second call before a look at what the first has done.
func SetError(res *mcp.CallToolResult, err error) {
	if res == nil || err == nil {
		return
	}

	res.IsError = true
	if len(res.Content) == 0 {
		res.Content = []mcp.Content{mcp.NewTextContent(err.Error())}
	}
	setMetadata(res, &settledError{err, shownWithoutGuard(err)})
}

const suggestCaution = "If this tool changes anything, check first whether this call took effect."

// shownWithoutGuard returns what a client may read of err. The caution follows words that aren't the author's and don't
// say that another call won't help.
func shownWithoutGuard(err error) *resilience.Error {
	e := resilience.AsError("", err)
	e.Details = nil
	open := e.Retryable
	switch e.Code {
	case resilience.CodeTimeout, resilience.CodeConnectionLost, resilience.CodeCanceled:
		open = true
	}
	usual := resilience.AsError("", &resilience.Error{Code: e.Code, Retryable: e.Retryable})
	if open && e.Suggestion == usual.Suggestion {
		e.Suggestion += " " + suggestCaution
	}
	return e
}

// A settledError is the metadata that SetError leaves in a result.
type settledError struct {
	err   error
	shown *resilience.Error
}

// MarshalJSON returns what a client may read.
func (e *settledError) MarshalJSON() ([]byte, error) { return json.Marshal(e.shown) }

// setError returns the error that was set by SetError, nil if there is none.
func setError(res *mcp.CallToolResult) error {
	if res.Meta == nil {
		return nil
	}
	if e, ok := res.Meta.AdditionalFields[resilience.MetaError].(*settledError); ok {
		return e.err
	}
	return nil
}

// maxErrorText bounds how much of a result's text an error repeats.
const maxErrorText = 1024

// errorOf returns the error of a result: that of SetError, or one with the text of the result, for
// logs.
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
	text := strings.Join(texts, "\n")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return resultError(text)
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

// A resultError is a result with isError and nothing behind it but its text, which is for logs only: an agent may
// have written it. It wraps errResult, so that its text isn't what its failure is judged by.
type resultError string

func (e resultError) Error() string { return cmp.Or(string(e), errResult.Error()) }
func (e resultError) Unwrap() error { return errResult }

// handlerError returns the error of a handler for the guard. It marks those errors that
// aren't a failure of the tool.
func handlerError(err error) error {
	switch {
	case urlElicitation(err) != nil:
		return resilience.MarkInvalid(errors.Join(resilience.ErrUnfinished, err))
	case isAboutArguments(err):
		return resilience.MarkInvalid(err)
	}
	return err
}

// answerOfError returns the answer that a handler's error is.
func answerOfError(err error) answer {
	var own *resilience.Error
	if errors.As(err, &own) {
		return answer{}
	}
	return answer{err: err, text: err.Error(), goError: urlElicitation(err) == nil}
}

// scrubbedError returns the error of a, or one around it without the secrets in its text.
func (a answer) scrubbedError(g *resilience.Guard) error {
	clean := g.Scrub(a.text)
	if clean == a.text {
		return a.err
	}
	return &scrubbedError{a.err, clean}
}

// A scrubbedError is a handler's error without the secrets in its text.
type scrubbedError struct {
	error
	text string
}

func (e *scrubbedError) Error() string { return e.text }
func (e *scrubbedError) Unwrap() error { return e.error }

// timedOut reports whether err says no more than that the timeout of ctx, a guarded call's, has passed.
func timedOut(ctx context.Context, err error) bool {
	end, ok := context.Cause(ctx).(*resilience.Error)
	return ok && end.Code == resilience.CodeTimeout && errors.Is(err, context.DeadlineExceeded)
}

// urlElicitation returns the error in err's chain that mcp-go turns into a request to the
// user, or nil.
func urlElicitation(err error) error {
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

// needsInput reports whether a result asks for elicitation, which is possible since mcp-go v1.0.
func needsInput(res any) bool {
	r, ok := res.(interface{ NeedsInput() bool })
	return ok && r.NeedsInput()
}

// withGuidance returns a copy of a tool's own result with e, which may be nil, if that says more than the tool
// does: in the _meta, and in the content, since hosts show that to the model. What SetError has left, it removes.
func withGuidance(res *mcp.CallToolResult, e *resilience.Error) *mcp.CallToolResult {
	out := *res
	switch {
	case e.HasGuidance():
		setMetadata(&out, e)
		text, _ := json.Marshal(e) // it never fails
		out.Content = append(slices.Clip(res.Content), mcp.NewTextContent(string(text)))
	case setError(res) != nil:
		setMetadata(&out, nil)
	default:
		return res
	}
	return &out
}

// setMetadata sets the error metadata of res to a copy of its _meta with e, or removes it if e is nil.
func setMetadata(res *mcp.CallToolResult, e any) {
	var meta mcp.Meta
	if res.Meta != nil {
		meta = *res.Meta
	}
	meta.AdditionalFields = maps.Clone(meta.AdditionalFields)
	if e == nil {
		delete(meta.AdditionalFields, resilience.MetaError)
	} else {
		if meta.AdditionalFields == nil {
			meta.AdditionalFields = make(map[string]any)
		}
		meta.AdditionalFields[resilience.MetaError] = e
	}
	res.Meta = &meta
}

// scrubbed returns res, or a copy of it, without the secrets in the text of its content, if it is a failure.
func scrubbed(g *resilience.Guard, res *mcp.CallToolResult) *mcp.CallToolResult {
	if !res.IsError {
		return res
	}

	var content []mcp.Content
	for i, c := range res.Content {
		t := textIn(c)
		if t == nil {
			continue
		}
		text := g.Scrub(t.Text)
		if text == t.Text {
			continue
		}
		if content == nil {
			content = slices.Clone(res.Content)
		}
		clean := *t
		clean.Text = text
		content[i] = clean
	}
	if content == nil {
		return res
	}

	out := *res
	out.Content = content
	return &out
}

// scrubbedWords returns e, or a copy of it, without the secrets in the words of the tool's author. It may be nil.
func scrubbedWords(g *resilience.Guard, e *resilience.Error) *resilience.Error {
	if e == nil {
		return nil
	}

	message, suggestion := g.Scrub(e.Message), g.Scrub(e.Suggestion)
	if message == e.Message && suggestion == e.Suggestion {
		return e
	}
	clean := *e
	clean.Message, clean.Suggestion = message, suggestion
	return &clean
}

// errorResult returns the result of a call for which the tool returned none.
func errorResult(ctx context.Context, name string, e *resilience.Error) *mcp.CallToolResult {
	text, _ := json.Marshal(e) // it never fails
	res := mcp.NewToolResultError(string(text))
	setMetadata(res, e)

	tool := lookUp(ctx, name)
	if tool != nil && tool.OutputSchema.Type == "" && tool.RawOutputSchema == nil {
		res.StructuredContent = e
	}
	return res
}

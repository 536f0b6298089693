package otelresilience

import (
	"strings"
	"time"

	"github.com/seed8d1e2389/resilience"
	"go.opentelemetry.io/otel/attribute"
)

// The names of OpenTelemetry's conventions are written here because its Go packages no
// longer have those for MCP and generative AI, which moved to conventions of their own.
const (
	keyMethod    = attribute.Key("mcp.method.name")
	keySession   = attribute.Key("mcp.session.id")
	keyProtocol  = attribute.Key("mcp.protocol.version")
	keyOperation = attribute.Key("gen_ai.operation.name")
	keyTool      = attribute.Key("gen_ai.tool.name")
	keyError     = attribute.Key("error.type")
	keyException = attribute.Key("exception.type")
	keyStack     = attribute.Key("exception.stacktrace")

	keyCode         = attribute.Key("resilience.code")
	keyAttempts     = attribute.Key("resilience.attempts")
	keyAttempt      = attribute.Key("resilience.attempt")
	keyDelay        = attribute.Key("resilience.delay")
	keyTimeout      = attribute.Key("resilience.timeout")
	keyRetryAfter   = attribute.Key("resilience.retry_after")
	keyUnfinished   = attribute.Key("resilience.unfinished")
	keyBreaker      = attribute.Key("resilience.breaker.name")
	keyBreakerState = attribute.Key("resilience.breaker.state")
)

const (
	executeTool = "execute_tool"
	toolError   = "tool_error"
	other       = "_OTHER"
)

// maxText bounds in bytes what others wrote: a name may be as long as a request.
const maxText = 256

// clean makes of what others wrote what an exporter can carry: bytes that aren't UTF-8
// would cost it the whole batch.
func clean(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxText)], "\uFFFD")
}

func text(key attribute.Key, s string) attribute.KeyValue { return key.String(clean(s)) }

func seconds(key attribute.Key, d time.Duration) attribute.KeyValue {
	return key.Float64(d.Seconds())
}

// bounded is code, if it is one of those that there are: a tool may make up its own.
func bounded(code resilience.Code) string {
	switch code {
	case resilience.CodeTimeout, resilience.CodeCircuitOpen, resilience.CodeConnectionLost,
		resilience.CodeRetryExhausted, resilience.CodeOverloaded, resilience.CodeToolFailed,
		resilience.CodeToolNotFound, resilience.CodeValidation, resilience.CodeCanceled:
		return string(code)
	}
	return other
}

// codeOf is the code that a tool's own error stands for.
func codeOf(tool string, err error) string {
	return bounded(resilience.AsError(tool, err).Code)
}

// errorType is the error.type of a call's error; "" if it is no failure.
func (c call) errorType(e *resilience.Error) string {
	switch {
	case e == nil, e.Code == resilience.CodeCanceled:
		return ""
	case c.method != "":
		return toolError // the adapters make a result with isError of it
	}
	return bounded(e.Code)
}

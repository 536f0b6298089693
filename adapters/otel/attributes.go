package otelresilience

import (
	"strings"
	"time"

	"github.com/seed8d1e2389/resilience"
	"go.opentelemetry.io/otel/attribute"
)

// The names of OpenTelemetry's conventions are repeated here because its Go packages no longer
// contain those for MCP and generative AI, which have moved to conventions of their own.
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
	keyCounted      = attribute.Key("resilience.counted")
	keyUnfinished   = attribute.Key("resilience.unfinished")
	keyBreaker      = attribute.Key("resilience.breaker.name")
	keyBreakerState = attribute.Key("resilience.breaker.state")
	keyBreakerCause = attribute.Key("resilience.breaker.cause")
)

// These are values of the attributes above.
const (
	executeTool = "execute_tool"
	toolError   = "tool_error"
	otherCode   = "_OTHER"
)

// maxText is the longest text from a client, in bytes. A name may be as long as a request.
const maxText = 256

// maxMessage is the length in bytes of the description of a span's status. A tool's own message may
// repeat what a client sent.
const maxMessage = 1024

// clean makes text from a client fit for export: short and valid UTF-8.
func clean(s string) string { return validUTF8(s[:min(len(s), maxText)]) }

// validUTF8 replaces invalid bytes, because of which an exporter would fail to send the whole
// batch.
func validUTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func text(key attribute.Key, s string) attribute.KeyValue { return key.String(clean(s)) }

func seconds(key attribute.Key, d time.Duration) attribute.KeyValue {
	return key.Float64(d.Seconds())
}

// bounded returns code if it is one of the resilience package's, and otherCode if a tool made
// it up.
func bounded(code resilience.Code) string {
	switch code {
	case resilience.CodeTimeout, resilience.CodeCircuitOpen, resilience.CodeConnectionLost,
		resilience.CodeRetryExhausted, resilience.CodeOverloaded, resilience.CodeToolFailed,
		resilience.CodeToolNotFound, resilience.CodeValidation, resilience.CodeCanceled,
		resilience.CodeShuttingDown, resilience.CodeRateLimited:
		return string(code)
	}
	return otherCode
}

// codeOf returns the code that a tool's own error stands for.
func codeOf(tool string, err error) string {
	return bounded(resilience.AsError(tool, err).Code)
}

// errorType returns the error.type of a call's error, or "" if the call hasn't failed.
func (c call) errorType(e *resilience.Error) string {
	switch {
	case e == nil, e.Code == resilience.CodeCanceled:
		return ""
	case c.method != "":
		return toolError // the adapters turn it into a result with isError
	}
	return bounded(e.Code)
}

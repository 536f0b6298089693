// Package resilience puts timeouts, circuit breakers and retries around the tools of an MCP server. If a tool hangs or
// its backend dies, the server still replies promptly, with an error that tells the agent what happened and what to do
// next.
//
//	var guard = resilience.Must(resilience.New(resilience.Config{
//		Tools: map[string]resilience.Tool{
//			"weather": {Effect: resilience.ReadOnly}, // retried after any transient failure
//			"report":  {Timeout: 10 * time.Second, Breaker: "warehouse"},
//		},
//	}))
//
//	text, err := resilience.Do(ctx, guard, "weather", func(ctx context.Context) (string, error) {
//		return "sunny", nil // call the backend with ctx
//	})
//
// # Calls
//
// [Do] makes one call, [Run] also returns its details, [All] makes several at once, and [Wrap] guards a handler. Each
// call passes a circuit [Breaker], a timeout and retries ([Retry]). An [Option] configures a single call. In
// configurations a negative number is an error, unless its field gives it a meaning.
//
// A tool runs on a goroutine of its own. At its timeout the call returns, and the goroutine is abandoned: it can't be
// stopped, so a tool should respect its context. [ReportProgress] restarts the timeout, and [Pause] suspends it.
// Outside of a call these do nothing. A call that may have acted, and whose outcome its agent hasn't received, isn't
// made twice, see [Once].
//
// [WithTimeout], [WithBreaker] and [WithRetry] are the parts of a guard, for use without one. They nest in any order.
// Tests may run in a testing/synctest bubble, even with a guard that was created outside of it.
//
// Whatever makes a call panics if the context, the guard or the breaker is nil. A nil function is TOOL_NOT_FOUND, an
// empty name VALIDATION_ERROR, and a context that has ended CANCELED or TIMEOUT; none of these is counted.
//
// # Failures
//
// Every error of a guarded call is an [*Error] with a [Code], and with a message and a suggestion that are safe to show
// to an agent. The [Class] of a failure decides whether the breaker counts it and whether it is retried. It follows
// from the error ([Classify]) and from the backend's answers ([Transport], [ReportBackend]), unless a mark
// ([MarkNoEffect] and its neighbors) or Config.Classify overrides it. A call that may have taken effect is only
// repeated as the tool's [Effect] allows.
//
// # Servers
//
// The nested modules adapters/gosdk and adapters/mcpgo guard every tool of a server in one line. For an adapter of your
// own, see [ForRequest], [EffectFromHints] and [MetaError]. A [Connector] keeps up a connection that many tools share.
//
// An [Observer] receives what happens. [LogObserver] writes it to slog, and adapters/otel turns it into traces and
// metrics. [Guard.Health] returns the state of every tool, and adapters/console shows it.
package resilience

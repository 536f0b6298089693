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
//	func main() {
//		text, err := resilience.Do(context.Background(), guard, "weather", func(ctx context.Context) (string, error) {
//			return "sunny", nil // call the backend with ctx
//		})
//		fmt.Println(text, err)
//	}
//
// # Calls
//
// [Do] makes one call, [Run] also returns its details, [All] makes several at once, and [Wrap] guards a handler. Each
// call passes a circuit [Breaker], a timeout and retries ([Retry]). An [Option] configures a single call. In
// configurations a negative number is an error, unless its field gives it a meaning.
//
// A tool runs on a goroutine of its own. At its timeout the call returns, and the goroutine is abandoned: it can't be
// stopped, so a tool should respect its context. [ReportProgress] restarts the timeout, and [Pause] suspends it. A call
// that may have acted, and whose outcome its agent hasn't received, isn't made twice, see [Once].
//
// [WithTimeout], [WithBreaker] and [WithRetry] are the parts of a guard, for use without one. They nest in any order.
// Tests may run in a testing/synctest bubble, even with a guard that was created outside of it.
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
// An [Observer] receives calls, retries and changes of breakers and connections. [LogObserver] writes them to slog, and
// adapters/otel turns them into traces and metrics. [Guard.Health] returns the state of every tool, adapters/console
// serves a page about it, and [Guard.Close] shuts a guard down.
package resilience

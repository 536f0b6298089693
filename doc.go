// Package resilience puts timeouts, circuit breakers and retries around the tools of an MCP
// server. If a tool hangs or its backend dies, the server still replies promptly, with an
// error that tells the agent what happened and what to do next.
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
// [Do] makes one call, [Run] also returns its details, [All] makes several at once, and [Wrap]
// guards a handler. Each call passes a circuit [Breaker], the timeout of its [Tier], and
// retries ([Retry], [Backoff]). An [Option] configures a single call.
//
// A tool runs on a goroutine of its own, and should respect its context. At its timeout the call
// returns, and the goroutine is abandoned: it can't be stopped, so Config.MaxAbandoned caps how many
// of them may run. [ReportProgress] restarts the timeout of a tool with a MaxTimeout, and [Pause]
// suspends it while a tool waits for a person. A call that may have acted, and whose outcome its agent hasn't
// received, isn't made twice: the same call joins it, see [Once].
//
// # Failures
//
// Every error of a guarded call is an [*Error] with a [Code], a message and a suggestion that are safe to
// show to an agent, and the cause for errors.Is and errors.As. The [Class] of a failure decides whether the breaker
// counts it and whether it is retried. It follows from the error ([Classify]) and from the
// backend's answers ([Transport], [ReportBackend]), unless a mark ([MarkNoEffect] and its neighbors)
// or Config.Classify overrides it. A call that may have taken effect is repeated only if the
// tool's [Effect] allows it. [Scrub] and Config.Scrub remove secrets from texts that agents read.
//
// # MCP
//
// The nested modules adapters/gosdk and adapters/mcpgo guard every tool of a server in one line. For
// an adapter of your own, see [ForRequest], [EffectFromHints] and [MetaError].
//
// # Connections
//
// A [Connector] keeps up a connection that many tools share. [Connector.Get] hands out a [Conn] at
// once, or returns CONNECTION_LOST with the time until the next dial. A tool that finds its connection
// broken calls [Conn.Lost], or [Conn.Suspect] if it can't be sure, and the connector dials again.
//
// # Operation
//
// An [Observer] receives calls, retries and changes of breakers and connections. Its Start runs on the
// goroutine of the call, which waits for it; the other events are queued. [LogObserver] writes them to
// slog, and adapters/otel turns them into traces and metrics. [Guard.Health] returns the state of every
// tool, and adapters/console serves a page about it.
//
// [BreakerConfig].Probe closes a breaker without a call, [Breaker.Isolate], [Breaker.Trip] and
// [Breaker.Reset] change its state by hand, and [BreakerKey] gives each backend of a tool its own.
// [Guard.Close] shuts a guard down.
//
// # Primitives
//
// [WithTimeout], [WithBreaker] and [WithRetry] are the parts of a guard, for use without one. They nest
// in any order. All waiting uses the time package, so tests may run in a testing/synctest bubble, even
// with a guard that was created outside of it.
package resilience

// Package resilience puts timeouts, circuit breakers and retries around the tools of an MCP
// server. If a tool hangs or its backend dies, the server still replies promptly, with an
// error that tells the agent what happened and what to do next.
//
// Configure a [Guard] once and call tools through it:
//
//	guard, err := resilience.New(resilience.Config{
//		Tools: map[string]resilience.Tool{
//			"search":       {Effect: resilience.ReadOnly},
//			"cypher":       {Effect: resilience.ReadOnly, Tier: resilience.Heavy, Breaker: "neo4j"},
//			"create_issue": {Effect: resilience.NonIdempotent},
//		},
//	})
//	rows, err := resilience.Do(ctx, guard, "cypher", func(ctx context.Context) (Rows, error) {
//		return db.Query(ctx, query)
//	})
//
// # Calls
//
// [Do] makes one call, [Run] makes one and returns all that is known of it, [All] makes
// several at once, and [Wrap] turns a handler into a guarded one. Each call passes a circuit
// breaker ([Breaker]), a timeout for the whole call ([Tier]), retries ([Retry], [Backoff]) and
// a timeout for each attempt. The options [Args], [Debug] and [Timeout] configure a single
// call.
//
// A tool runs on a goroutine of its own. If it exceeds its timeout, the call returns and the
// goroutine is abandoned. Nothing can stop such a goroutine, so it is counted until it ends,
// and Config.MaxAbandoned caps how many of them a tool may have. A tool should therefore
// respect its context. Nor can anything stop what ends the whole process, such as concurrent
// writes to a map.
//
// A tool that takes long but makes progress doesn't hang: with a Tool.MaxTimeout, each
// [ReportProgress] restarts its timeout. [Pause] suspends the timeout while a tool waits for a
// person, and [Excuse] keeps a timeout from counting while it waits for something else than its backend.
//
// # Failures
//
// Every failure is an [*Error] with a [Code], a message and a suggestion that are safe to show
// to an agent, and the cause for errors.Is and errors.As:
//
//	if errors.Is(err, resilience.CodeCircuitOpen) { … }
//
// What a failure means to the breaker and to retries is its [Class]. [Classify] knows the
// usual errors; [MarkTransient], [MarkPermanent] and [MarkNeutral] override it. A call that may
// have taken effect is repeated only if the tool's [Effect] allows it.
//
// # MCP
//
// The nested modules adapters/gosdk and adapters/mcpgo guard every tool of a server with one
// line, and take effects from the tools' annotations. [ForRequest], [EffectFromHints] and
// [MetaError] are for writing an adapter.
//
// # Connections
//
// A [Connector] keeps up one long-lived connection that many tools share. A tool gets the
// connection at once, or else CONNECTION_LOST with the time of the next dial. The connection
// comes back without help.
//
// # Observability
//
// An [Observer] receives the start, the retries and the end of every call, the changes of
// breakers, and results that come too late. [LogObserver] writes them to slog, and the nested
// module adapters/otel turns them into traces and metrics. An observer can't fail a call. It can
// delay one by about 100ms, and only in its Start. [Guard.Health] returns the current state of every tool, and the
// nested module adapters/console serves a page about it.
//
// # Operation
//
// BreakerConfig.Probe lets a breaker recover without a call. [Breaker.Isolate], [Breaker.Trip] and
// [Breaker.Reset] change its state by hand, and [BreakerKey] gives each backend of a tool a breaker of its own.
// [Guard.Close] shuts a guard down at the end of a program: it rejects new calls, and waits for those in flight
// and for the observers.
//
// # Primitives
//
// [WithTimeout], [WithBreaker] and [WithRetry] are the parts of a guard, for use without one.
// They nest in any order. They return the function's own error unchanged, and an *Error for
// what they did themselves, which wraps the function's error if there is one.
//
// # Time in tests
//
// All waiting uses the time package, so a test of a guarded tool may run in a testing/synctest
// bubble, even if the guard was created outside of it.
package resilience

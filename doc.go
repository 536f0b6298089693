// Package resilience stands between an MCP server and its tools. Tools hang,
// backends die, connections drop; the server answers all the same, soon, with an
// error that tells an AI agent what happened and what to do next.
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
// [Do] makes one call, [Run] makes one and tells all about it, [All] makes several
// side by side, and [Wrap] turns a handler into one that is guarded. Each call goes
// through a circuit breaker ([Breaker]), a limit for the whole of it ([Tier]), retries
// ([Retry], [Backoff]) and a limit for each attempt. [Args], [Debug] and [Limit] are
// wishes for one call.
//
// A tool runs on a goroutine of its own. One that outlives its limit is given up on:
// the call returns, the goroutine is counted until it ends, and how many of them a tool
// may have is capped (Config.MaxAbandoned). Nothing can stop such a goroutine, so a tool
// should heed its context. Nor can anything stop what ends the whole
// process, such as concurrent writes to a map.
//
// A tool that takes long but reports [Progress] isn't hung: with Tool.MaxTimeout, each
// report restarts its limit. [Pause] stops the clock while a tool waits for its user.
//
// # MCP
//
// The nested modules adapters/gosdk and adapters/mcpgo put every tool of a server under a
// guard with one line, and take effects from the tools' annotations. [MetaError],
// [MetaOptions], [HintedEffect] and [EffectFrom] are for an adapter of your own.
//
// # Failures
//
// Every failure is an [*Error] with a [Code], a message and a suggestion that are safe
// to show to an agent, and the cause for errors.Is and errors.As:
//
//	if errors.Is(err, resilience.CodeCircuitOpen) { … }
//
// What a failure means for the breaker and for retries is its [Class]. [Classify] knows
// the usual errors; [MarkTransient], [MarkPermanent] and [MarkInvalid] say it
// outright. What may have taken effect is repeated only where the tool's [Effect] allows
// it.
//
// # Connections
//
// A [Connector] keeps one long connection up that many tools work through: they get it, or
// CONNECTION_LOST with the time of the next dial, at once, and it comes back by itself.
//
// # Seeing it
//
// An [Observer] is told of the start, the retries and the end of every call, of breakers
// that change, and of results that come too late. [LogObserver] writes them to slog; the
// nested module adapters/otel makes traces and metrics of them. No observer can fail a
// call, or hold it up for more than a moment. [Guard.Health] is the state of every tool now,
// and [Guard.Flush] is for the end of a program.
//
// # Primitives
//
// [WithTimeout], [WithBreaker] and [WithRetry] are the parts by themselves. They nest
// in any order, return the function's own error unchanged, and an *Error only for what
// they did themselves.
//
// # Time in tests
//
// All waiting is by the time package, so that a test of a guarded tool may run in a
// testing/synctest bubble, also if the guard was made outside of it.
package resilience

// Package mcpgo guards MCP servers that are built on github.com/mark3labs/mcp-go.
//
// One option puts every tool of a server under a guard:
//
//	server.NewMCPServer("x", "1", server.WithToolHandlerMiddleware(mcpgo.Middleware(guard)))
//
// Pass it after the options of other middleware. Then the guard is next to the tools, within
// authorization, rate limits and whatever else decides about a call, which no retry repeats and no
// breaker counts.
//
// # What a client receives
//
// A client receives the tool's own answer: its result, or its error, of which mcp-go makes a protocol error. If the
// client leaves or the server ends, the tool's context ends, and its call is waited for until the tool's timeout. (Not
// all of mcp-go's servers end the context: the one for SSE never does, and in v0.47.0 the one for stdio doesn't at the
// end of its input. A call that has been paused then needs a deadline of its own.) The exceptions:
//
//   - If the failure is the backend's, or the tool's author has written a *resilience.Error, guidance is
//     added to a result with isError: the *resilience.Error in the _meta under [resilience.MetaError], and as one
//     more text item of the content, since hosts show that to the model, the line that says what to do next
//     ([resilience.Error.Line]). A failure that may just be tried again needs no such line.
//   - Secrets in the text items of a failed result, in the text of an error, and in the words of a
//     *resilience.Error are replaced, see [resilience.Guard.Scrub]. Structured content stays as it is.
//   - Where there is no answer, the guard gives one: after a timeout or a panic, if the breaker rejects
//     the call, if a handler returns neither a result nor an error, if a result can't be encoded (a NaN, for example,
//     for which mcp-go would send nothing), or if the error is a *resilience.Error. It is a result with isError,
//     whose text is one line that a model reads, such as "TIMEOUT: exceeded timeout of 1s. Try again later." The
//     JSON of the *resilience.Error is in the result's _meta and, if the tool has no output schema, in its
//     structuredContent. With debug, all texts of the guard's are that JSON, too. A panic ends neither the process nor
//     another call, and server.WithRecovery has nothing to do.
//   - A call that the same client sends again, since it hasn't received the outcome of the first one, joins that: see
//     [resilience.Once]. The result has one more text item, and [resilience.MetaJoined] in its _meta.
//   - A client that an open breaker rejects again is held first, see [resilience.BreakerConfig].MaxHold: two calls at
//     most over stdio, where mcp-go has five workers. Over HTTP without sessions nothing tells clients apart: no call
//     joins another one, or is held.
//   - Each attempt has a copy of the request's arguments, _meta and header. Values in them that aren't decoded
//     JSON, which other middleware may add, are shared.
//
// The text of a handler's error reaches the client, as mcp-go has it. If it isn't fit for agents, the
// handler should return a *resilience.Error with a Message, or the server use [HideErrors].
//
// # What counts as a failure
//
// Most failures are mistakes of agents, so only trouble of the backend is counted and retried:
//
//   - an error with a mark or of a type that means trouble, see [resilience.Classify], returned by the handler or, with
//     a result, by [SetError];
//   - a failed result whose text ends as such an error does, as the results of mcp.NewToolResultErrorFromErr and
//     mcp.NewStructuredToolHandler do: "connection refused", "context deadline exceeded" or "503 Service Unavailable",
//     for example. docs/errors.md of the resilience package has the table. A text that ends with an agent's words must
//     quote them. A handler that asked a person sets the error by SetError, as its text doesn't tell who was slow;
//   - any failure after which the backend has reported trouble, see [resilience.Transport] and
//     [resilience.ReportBackend];
//   - a timeout and a panic.
//
// The same holds for each [resilience.Do] within a handler. The option [Failure] has other choices. If nothing explains
// ten failures of a tool, the guard's Config.Log says so.
//
// Complaints about arguments that mcp-go itself makes (in NewTypedToolHandler, RequireString and similar
// functions) are the caller's mistake. A result that asks for elicitation is neither retried nor counted.
//
// A call that runs as a task outlives its request, and isn't guarded: it has no timeout, isn't counted, its errors
// reach the client as the tool has written them, and a panic ends the process. A resilience.Do within the handler
// guards its own part.
//
// Tools without an Effect in the guard's Config have the one that their annotations declare
// at the time of the failure. The middleware finds them in the server, without a request, and mcp-go
// rejects names that an agent made up before they reach it.
//
// A breaker belongs to a name under a guard, so different tools of the same name that sessions have of
// their own share one. To keep them apart, give them different names.
//
// # What a handler does itself
//
// mcp-go has no middleware for the messages that a server sends. A handler therefore reports
// progress with [NotifyProgress], and asks people with [Ask], by elicitation, sampling and requests for a
// client's roots:
//
//	answer, err := mcpgo.Ask(ctx, srv.RequestElicitation, question)
//
// That pauses the timeout of its call, which then isn't retried, since a retry would repeat the question. A
// question that isn't answered in time doesn't count as a failure of the backend. For what Ask doesn't fit,
// there are [resilience.Pause] and [resilience.MarkNeutral].
package mcpgo

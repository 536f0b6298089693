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
// The tool's own answer: its result, or its error, of which mcp-go makes a protocol error, and tells its
// hooks. When the client leaves or the server ends, the tool learns of it by its context, and its call
// is waited for until the tool's timeout. (Not all of mcp-go's servers end the context: the one for SSE never does, and
// that of v0.47.0 for stdio doesn't at the end of its input. A call that has been paused then waits for ever, unless it
// has a deadline of its own.) The exceptions:
//
//   - If the failure is the backend's, or the tool's author has written a *resilience.Error, guidance is
//     added to a result with isError: the *resilience.Error, as one more text item of the content, since
//     hosts show that to the model, and in the _meta under [resilience.MetaError].
//   - Secrets in the text items of a failed result, in the text of an error, and in the words of a
//     *resilience.Error are replaced, see [resilience.Guard.Scrub]. Structured content stays as it is.
//   - Where there is no answer, the guard gives one: after a timeout or a panic, if the breaker rejects
//     the call, if a handler returns neither a result nor an error, if any part of a result, or what it
//     asks the user, is no JSON (a NaN, of which mcp-go would send nothing), or as its error a
//     *resilience.Error, which [resilience.AsError] makes of any. It is a result with isError, whose text is
//     the JSON of the *resilience.Error. The error is also in the result's _meta and, if the tool has no
//     output schema, in its structuredContent. A panic ends neither the process nor another call, and
//     server.WithRecovery has nothing to do.
//   - Each attempt has a copy of the request, so hooks and other middleware don't see how a tool
//     changes it.
//
// The text of a handler's error reaches the client, as mcp-go has it. If it isn't fit for agents, the
// handler should return a *resilience.Error with a Message, or the server use [HideErrors].
//
// # What counts as a failure
//
// Only what is known to be the backend's trouble is counted and retried, since most failures are
// mistakes of agents: an error that says so by its mark or its type, see [resilience.Classify], and any
// failure after which the backend has said so, see [resilience.Transport] and
// [resilience.ReportBackend]. A timeout and a panic count too. The same holds for each [resilience.Do]
// within a handler. A handler that returns a result says why it has failed by [SetError]. The option [Failure] has other
// choices. mcp.NewStructuredToolHandler keeps only the text of an error, so the guard learns of it only from the backend.
//
// Complaints about arguments that mcp-go itself makes (in NewTypedToolHandler, RequireString and similar
// functions) are the caller's mistake. A result that asks for elicitation is neither retried nor counted.
//
// A call that runs as a task outlives its request, and isn't guarded: it has no timeout, isn't counted, its errors reach
// the client as the tool has written them, and a panic ends the process. A resilience.Do within the handler guards what
// it does.
//
// Tools that the guard's Config doesn't list have the effect that their annotations declare
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

// Package mcpgo guards MCP servers that are built on github.com/mark3labs/mcp-go.
//
// One option puts every tool of a server under a guard:
//
//	server.NewMCPServer("x", "1", server.WithToolHandlerMiddleware(mcpgo.Middleware(guard)))
//
// Pass it before the options of other middleware. Middleware that comes after it runs with
// the tool: within the timeout, and again with each attempt.
//
// # What a client receives
//
// A tool's own result is passed on as it is. If it has isError, a copy is passed on that
// holds the error metadata in _meta, under resilience.MetaError. If the tool has no result,
// because its handler returned an error, panicked or exceeded its timeout, or because the
// breaker rejected the call, the client receives a result with isError. Its text is the JSON of
// the *resilience.Error, which is in _meta too, and in structuredContent unless the tool has an
// output schema. A canceled call always ends with such a result.
//
// An unknown tool remains a protocol error, and a handler's mcp.URLElicitationRequiredError
// is returned to mcp-go.
//
// # What counts as a failure
//
// A handler's error is classified like any other, by resilience.Classify. A result with
// isError is a transient failure, even if a handler made by mcp.NewStructuredToolHandler
// returned a marked error, because mcp-go keeps only the text of that error. [Failure] changes
// that. Complaints about arguments that mcp-go itself makes (in NewTypedToolHandler,
// RequireString and similar functions) are the caller's mistake. A result that asks for
// elicitation is neither retried nor counted.
//
// A call that runs as a task outlives its request. It has no timeout and no retries and isn't
// counted, but a panic fails only that call.
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
// progress with [NotifyProgress], and pauses its timeout during elicitation:
//
//	resume := resilience.Pause(ctx)
//	answer, err := srv.RequestElicitation(ctx, question)
//	resume()
//
// A call that has been paused isn't retried, which would repeat the question.
package mcpgo

// Package mcpgo guards MCP servers that are built on github.com/mark3labs/mcp-go.
//
// One option puts every tool of a server under a guard:
//
//	server.NewMCPServer("x", "1", server.WithToolHandlerMiddleware(mcpgo.Middleware(guard)))
//
// Give it before other middleware: what comes after it is run, limited and repeated with
// the tool.
//
// # What a client sees
//
// A tool's own result, with or without isError, is passed on as it is; to one with
// isError the guard's advice is added in _meta, under resilience.MetaError. Where there
// is no result of the tool's (a handler's error, a timeout, an open breaker, a panic) the
// client gets one with isError whose text is the JSON of the *resilience.Error, which is
// also in _meta, and in structuredContent if the tool has no output schema. An unknown
// tool stays a protocol error, and so does a handler's mcp.URLElicitationRequiredError.
//
// # What counts
//
// A handler's error is classified like any other (resilience.Classify). A result with
// isError is a transient failure, as mcp-go keeps no error in it, also not that of a
// handler made by mcp.NewStructuredToolHandler; [Failure] changes that. What mcp-go
// itself says of arguments (NewTypedToolHandler, RequireString and so on) is the caller's
// mistake. A result that asks the user something is neither retried nor counted. Calls
// that run as tasks outlive their request: they have no limit, no retries and no count,
// but a panic fails only the call.
//
// Tools that the guard's Config doesn't list have the effect that their annotations
// say, as they are when a call fails.
//
// # What a handler does itself
//
// mcp-go has no middleware for what a server sends. A handler reports progress with
// [NotifyProgress], and stops its clock while it asks its user something:
//
//	resume := resilience.Pause(ctx)
//	answer, err := srv.RequestElicitation(ctx, question)
//	resume()
package mcpgo

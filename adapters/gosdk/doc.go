// Package gosdk guards MCP servers and clients that are built on the official Go SDK,
// github.com/modelcontextprotocol/go-sdk.
//
// One line puts every tool of a server under a guard:
//
//	gosdk.Protect(server, guard)
//
// It is the same as
//
//	server.AddReceivingMiddleware(gosdk.Middleware(guard))
//
// but also watches what tools send meanwhile. With Tool.MaxTimeout set, each progress
// notification restarts the limit of its call, and after a retry in the server progress
// never falls. While a tool asks its user something (elicitation) the clock stands, which
// only the client can end, and the call isn't retried, so that the user isn't asked twice.
//
// # What a client sees
//
// A tool's own result, with or without isError, is passed on as it is; to one with
// isError the guard's advice is added in _meta, under resilience.MetaError. The SDK makes
// such a result of a typed handler's error, with all of its text: return a
// *resilience.Error with a Message where that isn't for agents. Where there
// is no result of the tool's (a timeout, an open breaker, a panic) the client gets one
// with isError whose text is the JSON of the *resilience.Error, which is also in _meta,
// and in structuredContent if the tool has no output schema. Protocol errors (an unknown
// tool, a handler's *jsonrpc.Error) stay protocol errors.
//
// # What counts
//
// A typed handler's error is classified like any other (resilience.Classify). A result
// with isError for which there is no Go error is a transient failure; [Failure] changes
// that. The SDK's refusal of arguments that break the tool's schema is the caller's
// mistake; those that fit the schema but not the Go type can't be told from the tool's
// own errors, and count. A result that asks the user something is neither retried nor
// counted.
//
// Tools that the guard's Config doesn't list have the effect that their annotations
// say, as they are when a call fails.
//
// # Other servers
//
// [ClientMiddleware] puts a client's calls of another server's tools under a guard, and a
// [Session] is dialled again when it is lost, which the SDK's own isn't.
package gosdk

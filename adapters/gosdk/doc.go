// Package gosdk guards MCP servers and clients that are built on the official Go SDK,
// github.com/modelcontextprotocol/go-sdk.
//
// One line puts every tool of a server under a guard:
//
//	gosdk.Protect(server, guard)
//
// [Protect] adds [Middleware] to the receiving middleware of the server. It also adds sending
// middleware, which sees what tools send while they run:
//
//   - Each progress notification of a tool with a MaxTimeout restarts the timeout of its call. The
//     progress that a client sees never decreases, even if the call is retried.
//   - An elicitation pauses the timeout, so that only the client can end the call meanwhile. A call
//     that has elicited something from the user isn't retried, which would repeat the question,
//     however its attempt ends.
//
// # What a client receives
//
// A tool's own result reaches the client as it is, except that error metadata is added to a result
// with isError: the *resilience.Error in its _meta, under [resilience.MetaError]. The SDK turns an
// error of a typed handler into such a result, with all of the error's text. If that text isn't
// fit for agents, the handler should return a *resilience.Error with a Message.
//
// A call may also end without a result of the tool's own, because of a timeout, an open breaker or a
// panic. The client then receives a result with isError whose text is the JSON of the
// *resilience.Error. The error is also in the result's _meta and, if the tool has no output schema,
// in its structuredContent. Protocol errors remain protocol errors, both the SDK's for an unknown
// tool and a *jsonrpc.Error that a handler returns.
//
// # What counts as a failure
//
// An error of a typed handler is classified like any other, see [resilience.Classify]. A result with
// isError that has no Go error behind it is a transient failure. The option [Failure] overrides both.
//
// Arguments that violate the tool's schema are rejected by the SDK, and are the caller's mistake.
// Arguments that match the schema but not the Go type count as failures, because the SDK's error for
// them looks like one of the tool's own. A result that requests input from the user is neither
// counted nor retried.
//
// # What is known of a tool
//
// A tool that isn't listed in the guard's Config has the effect that its annotations declare in the last
// tools/list whose result has passed through the middleware. The middleware never asks for a list itself,
// so that other middleware sees only what clients do. A tool that no list has contained, as after a
// restart, has Config.Effect: by default it isn't retried if the failed call may have taken effect.
// Servers that are made for one request each need the option [ShareTools].
//
// Once a list has shown tools, a name that no list has contained may be made up by an agent, so it shares
// the breaker "(others)" with other such names, unless the guard's Config lists it. Before that, every
// tool has a breaker of its own. Middleware that hides tools which clients may call all the same should run
// around this middleware, which then sees the complete list: add it after Protect.
//
// A breaker belongs to a name under a guard. If servers or sessions have different tools of the same name,
// give each server a guard of its own.
//
// # Other servers
//
// [ClientMiddleware] guards a client's calls of another server's tools. A [Session] is redialed when
// it is lost, which a session of the SDK isn't.
package gosdk

// Package gosdk guards MCP servers and clients that are built on the official Go SDK,
// github.com/modelcontextprotocol/go-sdk.
//
// One line puts every tool of a server under a guard:
//
//	gosdk.Protect(server, guard)
//
// Call it before other middleware is added. Then the guard is next to the tools, within authorization,
// rate limits and whatever else decides about a call, which no retry repeats and no breaker counts.
//
// [Protect] adds [Middleware] to the receiving middleware of the server. It also adds sending
// middleware, which sees what tools send while they run:
//
//   - Each progress notification of a tool with a MaxTimeout restarts the timeout of its call.
//   - Elicitation, sampling and the request for a client's roots pause the timeout, since they wait for
//     people, so that only the client can end the call meanwhile. A call that has asked something isn't
//     retried, which would repeat the question, however its attempt ends. That holds for what is asked with the
//     context of the call.
//   - What a tool tells its client, with the context of its call or as its progress, is written before the tool goes
//     on. But for a client that doesn't read, an attempt waits for no more than 100ms in all, or a hundredth of its
//     timeout if that is less. After that the tool goes on without an error, and what it tells its client is sent in
//     order as that reads, before a question or its answer, which wait for that at most a second for each message: a
//     client that needs as long for each of a thousand waits a quarter of an hour for its answer, as it would without a
//     guard. What the client doesn't read in that time is dropped with the end of the call, and so is what it hasn't read
//     when the guard gives the answer, such as a TIMEOUT, which waits for nothing. Pings wait for their answers for ten
//     times as long in all, and are an error after that. A hundredth of the time since is given back, and a tenth to pings.
//   - Any other notification waits for clients that don't read for at most 100ms in all, of which a hundredth of the
//     time since is given back: one to another session, and one that is sent without the context of a request, as the
//     SDK does for Server.ResourceUpdated and slog does for a mcp.LoggingHandler. Then the sender goes on, without an
//     error, and the notification is sent, as it was, once the client reads.
//   - Of a call, and of a session for all else, 1,000 notifications are kept in that way. One more waits for the client to
//     read another, one of a call for as long as a ping and any other for a millisecond, and is an error if it doesn't.
//
// # What a client receives
//
// The tool's own answer: its result, its protocol error, its progress, as without a guard. When the
// client leaves or the server ends, the tool learns of it by its context, and its call is waited for
// until the tool's timeout. (The SDK itself doesn't end the context if a client vanishes over HTTP or SSE: over
// stateful HTTP without a cancellation, nor by a DELETE, which waits for the call, and with
// StreamableHTTPOptions.Stateless unless PropagateRequestCancellation is set, too, and the client speaks protocol
// 2026-07-28. A call whose timeout is paused then waits for ever, unless it has a deadline of its own.) The exceptions:
//
//   - If the failure is the backend's, or the tool's author has written a *resilience.Error, guidance is
//     added to a result with isError: the *resilience.Error, as one more text item of the content, since
//     hosts show that to the model, and in the _meta under [resilience.MetaError]. To a protocol error
//     without data it is added as that. Data that is no JSON is left out: the SDK would end the session.
//   - Secrets in the text items of a failed result, in the text of an error, and in the words of a
//     *resilience.Error are replaced, see [resilience.Guard.Scrub]. Structured content stays as it is.
//   - Where there is no answer, the guard gives one: after a timeout or a panic, if the breaker rejects
//     the call, if a handler returns neither a result nor an error, if any part of a result, or what it asks,
//     is no JSON (a NaN, of which the SDK would send nothing), or as the error of a handler of the low-level
//     API, a *resilience.Error (of which mcp.AddTool makes a result). It is a result with isError, whose text
//     is the JSON of the *resilience.Error. The error is also in the result's _meta and, if a list of tools
//     has shown that the tool has no output schema, in its structuredContent. A panic ends neither the
//     process nor another call. (Except one on a goroutine of the SDK's, which asks clients of protocols
//     before 2026-07-28 what a result requests: it panics if the parameters of a sampling request, or a message
//     among them, are nil, and Middleware without Protect doesn't see what else panics there.)
//   - While a tool asks people, by elicitation, sampling or for the roots, its timeout is paused. After an
//     elicitation in URL mode, whose answer comes before the person has done anything, a tool that waits
//     calls [resilience.Pause] itself. So does one that gives people longer than its own timeout, before it makes
//     the context for the question: a context.WithTimeout of a context that isn't paused has no later deadline.
//   - A call that is made again doesn't repeat progress that an earlier attempt has sent. A tool that was
//     abandoned can neither send progress nor ask any more with the context of its call.
//   - Each attempt has a copy of the request, so other middleware doesn't see how a tool changes it.
//
// The text of a handler's error therefore reaches the client, as the SDK has it. If it isn't fit for
// agents, the handler should return a *resilience.Error with a Message, or the server use [HideErrors].
//
// # What counts as a failure
//
// Only what is known to be the backend's trouble is counted and retried, since most failures are mistakes
// of agents: an error that says so by its mark or its type, see [resilience.Classify], and any failure
// after which the backend has said so, see [resilience.Transport] and [resilience.ReportBackend]. A
// timeout and a panic count too. The same holds for each [resilience.Do] within a handler. A handler of the SDK's
// low-level API says why it has failed by res.SetError, which keeps the content that is there. The option [Failure] has
// other choices.
//
// What goes wrong between a server and its client says nothing about the backend. Behind [Protect], an error of the
// session's Elicit, CreateMessage, ListRoots, Ping, Log or NotifyProgress, such as that the user hasn't answered in
// time, is neither counted nor retried, also if a handler wraps it. Its text, errors.Is and errors.As are the same. (A
// handler that gives a person less than its own time, and returns the ctx.Err() of that instead, says that it timed out.)
// But an error of Log or NotifyProgress is no *jsonrpc.Error itself, of which mcp.AddTool would make a protocol error
// instead of a result.
//
// Arguments that violate the tool's schema or don't fit its Go type are rejected by the SDK, and are the
// caller's mistake. The SDK returns what an UnmarshalJSON or UnmarshalText method says like any error of a
// handler's, so a method of your own says by [resilience.MarkInvalid] that it was a mistake. What a type of the
// standard library says is recognized if it says the same of a part of the arguments, except of what only a looser
// schema than the SDK's own lets through, such as an object for a *big.Int. A result that requests input from the user
// is neither counted nor retried.
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
// [NewClient] returns a client whose calls of another server's tools are guarded; [ClientMiddleware] does
// so for a client whose user isn't asked anything. A [Session] is redialed when it is lost, which a session
// of the SDK isn't.
package gosdk

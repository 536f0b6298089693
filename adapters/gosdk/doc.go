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
// [Protect] adds [Middleware] to the receiving middleware of the server. It also adds sending middleware, which
// acts on what tools send while they run, with the context of their call:
//
//   - Each progress notification of a tool with a MaxTimeout restarts the timeout of its call.
//   - A client that asks for progress receives some, every 15 seconds, while the tool reports none: see [Heartbeat].
//   - Elicitation, sampling and the request for a client's roots pause the timeout, since they wait for
//     people, so that only the client can end the call meanwhile. A call that has asked something isn't
//     retried, which would repeat the question. After an elicitation in URL mode, whose answer comes before the person
//     has done anything, a tool that waits calls [resilience.Pause] itself.
//
// # What a client receives
//
// A client receives the tool's own answer: its result, its protocol error, its progress, as without a guard. When the
// client leaves or the server ends, the context of the tool ends, and its call is waited for until the tool's timeout.
// (Over HTTP, the SDK itself doesn't end the context if a client vanishes without a cancellation. A call whose
// timeout is paused then waits forever, unless it has a deadline of its own.) The exceptions:
//
//   - If the failure is the backend's, or the tool's author has returned a *resilience.Error, that is added to a
//     result with isError, in the _meta under [resilience.MetaError]. What to do next follows the tool's own content
//     as one more text item, a line that hosts show to the model, unless it is obvious: see [resilience.Error.Line].
//     The data of a protocol error that has none is the *resilience.Error. Data that is no JSON is left out: the SDK
//     would end the session.
//   - Secrets in the text items of a failed result, in the text of an error, and in the words of a
//     *resilience.Error are replaced, see [resilience.Guard.Scrub]. Structured content stays as it is.
//   - If there is no answer, the guard gives one: after a timeout or a panic, if the breaker rejects
//     the call, if a handler returns neither a result nor an error, if a result is no JSON (because of a NaN, for
//     example), or if a handler of the low-level API returns a *resilience.Error. The guard's answer is a result with
//     isError, whose text is a line with the code, what happened, and what to do next. The *resilience.Error is in
//     the result's _meta and, if the tool has no output schema, in its structuredContent.
//   - With debug, the line is the JSON of the *resilience.Error, in either case.
//   - A client that an open breaker rejects again is held first, see [resilience.BreakerConfig].MaxHold.
//   - A call that the same client sends again, since it hasn't received the outcome of the first one, joins that: see
//     [resilience.Once]. Stateless HTTP needs a TokenInfo.UserID for it, since it has no sessions, and a cut connection
//     is noticed with StreamableHTTPOptions.PropagateRequestCancellation since protocol 2026-07-28. The result has one
//     more text item, and [resilience.MetaJoined] in its _meta.
//   - A call that is made again doesn't repeat progress that an earlier attempt has sent. A tool that was
//     abandoned can neither send progress nor ask any more with the context of its call: it gets the error of that
//     context.
//   - Each attempt has a copy of the request, so other middleware doesn't see how a tool changes its fields.
//
// The text of a handler's error therefore reaches the client, as the SDK has it. If it isn't fit for
// agents, the handler should return a *resilience.Error with a Message, or the server use [HideErrors].
//
// A client that reads slowly holds up a tool that notifies it, as without a guard. A tool that waits for its client
// at its timeout has timed out, which counts.
//
// # What counts as a failure
//
// Only what is known to be the backend's trouble is counted and retried, since most failures are mistakes
// of agents: an error that says so by its mark or its type, see [resilience.Classify], and any failure
// after which the backend has reported trouble, see [resilience.Transport] and [resilience.ReportBackend]. A result
// whose text ends as such an error does counts too, see [resilience.ResultError]. A
// timeout and a panic count too. The same holds for each [resilience.Do] within a handler. A handler of the SDK's
// low-level API tells why it has failed by res.SetError, which keeps the content that is there. The option [Failure]
// has other choices.
//
// Unknown tools, arguments that violate the tool's schema, and protocol errors whose code says that the request is
// wrong are the caller's mistake. A result that requests input from the user is neither counted nor retried. Behind
// [Protect], nor is an error of the session's Elicit, CreateMessage, ListRoots, Ping, Log or NotifyProgress, wrapped or
// not, such as that the user hasn't answered in time. (A handler that returns the ctx.Err() of a context with
// a shorter timeout instead has timed out.)
//
// # What is known of a tool
//
// The middleware asks the server itself for its tools, by tools/list, when a call names a tool that it doesn't know,
// and at the next call after a client has listed the tools. So a tool that is added is known from its first call, and
// changed annotations once a client has listed the tools again. Middleware that was added before sees these requests.
//
// A tool without an Effect in the guard's Config has the one that its annotations declare. A name that
// neither the server nor the Config lists may be made up by an agent, so it shares the breaker "(others)" with other
// such names. If the server doesn't answer within a second, every tool may exist and has the effect Config.Effect.
// Middleware that hides tools which clients may call all the same should be added after Protect.
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

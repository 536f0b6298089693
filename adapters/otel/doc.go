// Package otelresilience reports the calls of a [resilience.Guard] to OpenTelemetry: a span
// and metrics for each call, by OpenTelemetry's semantic conventions for MCP.
//
// Create a [Telemetry] and list its observer in the guard's configuration:
//
//	otel.SetErrorHandler(otelresilience.LogErrorsOnce(nil)) // reports a dead collector once
//	telemetry, err := otelresilience.New(otelresilience.Config{}) // OpenTelemetry's global providers
//	guard, err := resilience.New(resilience.Config{
//		Observers: []resilience.Observer{telemetry.Observer()},
//	})
//	stop, err := telemetry.Watch(guard) // gauges for breakers and calls in flight
//
// Before the program ends, call guard.Flush, and then the providers' Shutdown.
//
// # Traces
//
// One span covers one call, with all of its attempts. It is in the context that the tool
// gets, so that spans of the tool's own are its children.
//
//	call                    name                    kind      parent
//	answers an MCP request  tools/call {tool}       SERVER    the trace in the request's _meta
//	makes an MCP request    tools/call {tool}       CLIENT    the context's span
//	any other               execute_tool {tool}     INTERNAL  the context's span
//	(late result)           resilience.late_result  INTERNAL  the call's span
//
// A request's _meta holds traceparent, tracestate and baggage; only strings are read, and
// what is malformed is ignored. If there is a trace in _meta and the context has a span too
// (of the HTTP request, say), that span becomes a link. Without one in _meta, the
// context's span is the parent. A request that the guard makes isn't given the trace: an
// observer can't change it. All of _meta comes from a client who can write what he likes:
// its baggage, which takes the place of the context's, reaches the tool's context and never
// a metric; and if the sampler goes by the parent, as the SDK's does by default, it decides
// whether the call is sampled.
//
// A tool whose name an agent may have made up (its label is "(others)") is left out of the
// span's name.
//
//	attribute               type    on
//	mcp.method.name         string  MCP requests
//	mcp.session.id          string  MCP requests, where known
//	mcp.protocol.version    string  MCP requests, where known
//	gen_ai.operation.name   string  all: execute_tool
//	gen_ai.tool.name        string  all
//	error.type              string  failures: tool_error for MCP requests, for others the code
//	resilience.code         string  calls with an error; late results with one
//	resilience.attempts     int     calls; 0: the tool wasn't called
//	resilience.timeout        double  calls that got a timeout, in seconds
//	resilience.retry_after  double  errors that say so, in seconds
//	resilience.unfinished   bool    calls that the tool has not finished yet: true
//
// A call that fails has the status Error, with the Message of its resilience.Error, which
// is safe to show. The text of causes is nowhere: it may hold credentials, traces often
// leave the house, and resilience.LogObserver has it. What the caller did wrong
// (VALIDATION_ERROR, TOOL_NOT_FOUND) is a failure here, because the conventions make every
// result with isError one: tell them by resilience.code. A caller who went away (CANCELED)
// is none: the code is there, but neither error.type nor the status. Nor is a call that
// isn't finished.
//
//	span event        attributes
//	resilience.retry  resilience.attempt (that failed), resilience.delay (seconds), error.type
//	exception         exception.type, exception.stacktrace: of a panic
//
// A retry's error.type is the code that its error stands for. A late result, which comes
// of an attempt that was given up on, is a span of its own, from when it was given up on
// until it returned; its status is unset, because the call has been judged without it.
//
// # Metrics
//
// The tool is the call's label: however many names agents make up, there are never more
// than the guard's Health has, and one.
//
//	instrument                     kind           unit       attributes
//	mcp.server.operation.duration  histogram      s          (all)
//	mcp.client.operation.duration  histogram      s          (all)
//	resilience.call.duration       histogram      s          (all); calls without an MCP request
//	resilience.call.attempts       histogram      {attempt}  (all)
//	resilience.retries             counter        {retry}    gen_ai.tool.name, error.type
//	resilience.late_result.delay   histogram      s          gen_ai.tool.name, resilience.code
//	resilience.breaker.changes     counter        {change}   resilience.breaker.name, resilience.breaker.state (the new one)
//	resilience.breaker.state       gauge          {breaker}  resilience.breaker.name, resilience.breaker.state
//	resilience.calls.in_flight     updowncounter  {call}     gen_ai.tool.name
//	resilience.calls.abandoned     updowncounter  {call}     gen_ai.tool.name
//
// (all) is mcp.method.name, gen_ai.operation.name, gen_ai.tool.name, error.type,
// resilience.code and resilience.unfinished, each where a span of the call would have it.
// A code that is none of the resilience package's is _OTHER, on metrics and in error.type.
// The last three come of [Telemetry.Watch]. The state of a breaker is three series,
// closed, half-open and open, of which one is 1.
//
// # When telemetry fails
//
// Calls go on at full speed, and nothing is lost but telemetry. With a batch span
// processor and a periodic reader, as is usual, exporters work on their own; what a
// collector that hangs or is down makes them say comes to OpenTelemetry's error handler,
// see [LogErrorsOnce]. A span processor that exports synchronously, and hangs, holds up
// this observer: the guard then drops what it would be told, and says so once.
package otelresilience

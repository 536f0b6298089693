// Package otelresilience reports the calls of a [resilience.Guard] to OpenTelemetry. It makes
// a span and metrics for each call, named after OpenTelemetry's semantic conventions for MCP.
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
// One span covers one call with all of its attempts. The tool receives it in its context, so
// that spans which the tool starts are its children.
//
//	call                    name                    kind      parent
//	answers an MCP request  tools/call {tool}       SERVER    the trace in the request's _meta
//	makes an MCP request    tools/call {tool}       CLIENT    the context's span
//	any other               execute_tool {tool}     INTERNAL  the context's span
//	(late result)           resilience.late_result  INTERNAL  the call's span
//
// A request's _meta may hold traceparent, tracestate and baggage. Only strings are read, and
// malformed values and those of more than 32 KiB are ignored. If _meta holds a trace and the
// context has a span as well, that of the HTTP request, for example, the context's span becomes a
// link. If _meta holds no trace, the context's span is the parent. Requests that the server makes
// as a client don't carry the trace, because an observer can't change them.
//
// All of _meta comes from the client, which can write anything into it. Its baggage replaces
// that of the context and reaches the tool's context, but never a metric. A sampler that follows
// the parent, as the SDK's does by default, lets the client decide whether a call is sampled.
//
// The span's name leaves out a tool's name that an agent may have made up, which is one whose
// label is "(others)".
//
//	attribute               type    on
//	mcp.method.name         string  MCP requests
//	mcp.session.id          string  MCP requests, where known
//	mcp.protocol.version    string  MCP requests, where known
//	gen_ai.operation.name   string  all spans: execute_tool
//	gen_ai.tool.name        string  all spans
//	error.type              string  failures: tool_error for MCP requests, the code for other calls
//	resilience.code         string  calls and late results with an error
//	resilience.counted      bool    calls with an error: whether the breaker has counted it as a failure
//	resilience.attempts     int     calls; 0 if the tool wasn't called
//	resilience.timeout      double  calls that had a timeout, in seconds
//	resilience.retry_after  double  errors with a RetryAfter, in seconds
//	resilience.unfinished   bool    calls that the tool hasn't finished yet: true
//
// A call that fails has the status Error with the Message of its resilience.Error, which is safe
// to show. The text of a cause isn't part of any span or metric: it may contain credentials, and
// traces are often sent to other companies. Use resilience.LogObserver to log it.
//
// The caller's mistakes (VALIDATION_ERROR, TOOL_NOT_FOUND) are failures here, because the
// conventions count every result with isError as one. Use resilience.counted to distinguish
// them from those of the backend. A call whose caller left (CANCELED) isn't a failure: it has the code, but neither
// error.type nor the status. Nor is a call that isn't finished a failure.
//
//	span event        attributes
//	resilience.retry  resilience.attempt (which failed), resilience.delay (seconds), error.type
//	exception         exception.type, exception.stacktrace: of a panic
//
// The error.type of a retry is the code that its error stands for. A late result, which an
// abandoned attempt returned, has a span of its own. It lasts from the moment when the attempt
// was abandoned until it returned. Its status is unset, because it no longer affects the call.
//
// # Metrics
//
// The value of gen_ai.tool.name is the call's label, and that of resilience.breaker.name the label of
// the change. However many names agents make up, there are at most 1,024 labels of tools besides "(others)" and
// the tools in the guard's Config, and of breakers at most 1,024 more, of keys.
//
//	instrument                     kind           unit       attributes
//	mcp.server.operation.duration  histogram      s          (all)
//	mcp.client.operation.duration  histogram      s          (all)
//	resilience.call.duration       histogram      s          (all); calls without an MCP request
//	resilience.call.attempts       histogram      {attempt}  (all)
//	resilience.retries             counter        {retry}    gen_ai.tool.name, error.type
//	resilience.late_result.delay   histogram      s          gen_ai.tool.name, resilience.code
//	resilience.breaker.changes     counter        {change}   resilience.breaker.name, resilience.breaker.state (new),
//	                                                         resilience.breaker.cause
//	resilience.breaker.state       gauge          {breaker}  resilience.breaker.name, resilience.breaker.state
//	resilience.calls.in_flight     updowncounter  {call}     gen_ai.tool.name
//	resilience.calls.abandoned     updowncounter  {call}     gen_ai.tool.name
//
// (all) means mcp.method.name, gen_ai.operation.name, gen_ai.tool.name, error.type,
// resilience.code, resilience.counted and resilience.unfinished, each where the call's span has it. On metrics and
// in error.type, a code that isn't one of the resilience package's own is _OTHER.
//
// The last three instruments need [Telemetry.Watch], and show what is in the guard's Health when they
// are collected, by its own names: those of at most 1,024 tools that the Config doesn't list, and over time of any
// number. The state of a breaker consists of four
// series, closed, half-open, open and isolated, one of which is 1. The breakers of keys, of which there
// may be many, have none: resilience.breaker.changes counts how often one of them has opened and closed.
//
// OpenTelemetry's SDK has a limit of series, for each instrument, beyond which all go into one with the attribute
// otel.metric.overflow. In recent versions it is 2,000, unless WithCardinalityLimit of the MeterProvider says
// otherwise: enough for the states of 499 breakers. Those of tools that the Config lists come first.
//
// # When telemetry fails
//
// Calls continue at full speed, and only telemetry is lost. With a batch span processor and a
// periodic reader, as is usual, exporters run on goroutines of their own. If the collector hangs
// or is down, they report errors to OpenTelemetry's error handler, see [LogErrorsOnce]. A span
// processor that exports synchronously and hangs blocks this observer. The guard then drops
// events for the observer, and logs that once.
package otelresilience

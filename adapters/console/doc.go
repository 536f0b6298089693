// Package console serves a page about a [resilience.Guard] for the people who operate a server: which tools are
// broken, since when, why, and when their backends are asked again. It needs nothing but the standard library.
//
// Create a [Console] for each guard, list its observer in the guard's configuration, and serve its handler:
//
//	page, err := console.New(console.Config{})
//	guard, err := resilience.New(resilience.Config{
//		Observers: []resilience.Observer{page.Observer()},
//	})
//	handler, err := page.Handler(guard)
//	mux.Handle("/console/", http.StripPrefix("/console", handler))
//	server.RegisterOnShutdown(page.Close) // otherwise Shutdown would wait for open pages
//
// # Routes
//
//	GET  /                             the page, whose files are below /page/
//	GET  /healthz                      200 or 503, for a load balancer; see Config.Healthy
//	GET  /api/health                   all that the page shows, as JSON
//	GET  /api/events                   the same as server-sent events
//	POST /api/breakers/isolate?name=…  rejects all calls, see [resilience.Breaker.Isolate]
//	POST /api/breakers/reset?name=…    closes the breaker, see [resilience.Breaker.Reset]
//
// The last two are also at /api/breakers/{name}/isolate and /api/breakers/{name}/reset, for plain names.
//
// The page uses relative URLs, so that the handler may be mounted below any prefix whose URL ends with a slash. It
// loads nothing from elsewhere, and a strict Content-Security-Policy makes sure of that: a proxy must not replace
// that header.
//
// # Who may read, and who may change
//
// The console authenticates no readers. It shows them the names of tools, breakers and keys, and the errors that
// agents read: serve it where only operators are, or wrap it in the server's own authentication.
//
// The last two routes exist only with Config.Authorize. They answer 403 if that returns false, and to requests that
// a browser makes for another site. (Over plain HTTP, a request must have the Host of the page's address for that: a
// proxy must not change it.) If Authorize returns false, the page asks for an access token, and sends it with the
// header "Authorization: Bearer …" for as long as it is open; a server that has sessions needs none. An Authorize
// that trusts the address of the client trusts everyone behind a proxy, and every page that a browser there has open:
// a name of its own can lead to that address, too (DNS rebinding), unless Authorize looks at the Host.
//
// The body of isolate may hold a reason, as {"reason": "…"} or as a form, of at most 500 characters. Agents read it.
// The name is percent-encoded. Names of keys contain a slash and may be chosen by agents; proxies that decode paths
// change such a name in a path, so give it in the query, as the page does. All breakers of that name are changed. The
// answer is the breaker as in /api/health, or {"error": "…"} with 400, 403, 404 or 413.
//
// # JSON
//
// These names are stable; others may be added. Times are as in RFC 3339, durations in seconds.
//
//	title, started           Config.Title, and when the console was created: another time means another process
//	time, closed             when this was true, and whether the guard is closed
//	control                  whether breakers can be changed
//	step, steps              the seconds in a row of a history, and how many rows there may be
//	tools                    as Guard.Health returns them: tool, listed, available, breaker, state, retryAfter,
//	                         consecutiveFailures, inFlight, abandoned, and
//	  lastError              the last failure that a breaker counted: code, message (of 1,024 bytes at most), time,
//	                         and cause if it is shown
//	  lastMinute             calls that ended since 50 to 60 seconds: succeeded, failed, rejected, other, p50, p95;
//	                         none of tools beyond the guard's labels
//	  history                rows [start, succeeded, failed, rejected, other, p50, p95], the oldest first; start is in
//	                         seconds since 1970, and steps without calls have no row
//	breakers                 breaker, key, state, retryAfter, consecutiveFailures, reason, tools, and
//	  since, cause           when the breaker ceased to be closed, and why: calls or manual; the reason is
//	                         that of Isolate, or why the last call had failed by then
//	changes                  the last 200, the oldest first: number, time, breaker, from, to, cause, reason
//
// Rejected calls haven't reached the tool. Other ones were mistakes of the caller's, canceled, or aren't finished.
// The quantiles are of calls that succeeded or failed. They are upper bounds, at most 1.8 times the true value, from
// 1ms to 100s: a longer time is 100s, and a shorter one is 1ms. Where several breakers have the same name, the worst is
// shown. Where a guard has thousands of breakers, since and cause may be missing.
//
// /api/events sends a snapshot first, also to a reader that comes back: the document of /api/health. Then it sends an
// update whenever something has changed, at most one in a second and at least one in five: the same document with only
// what has changed, histories with only their last rows, and in gone the breakers that are no longer there.
//
// # Costs
//
// A call costs the guard one more event, on the goroutine of the observer. The console starts no goroutine: a stream
// runs on that of its request. Readers share each look at the guard, no events are kept for a slow one, and a reader is
// dropped if an event can't be sent in ten seconds. Each tool that was called takes about 7 KB, and there are as many
// as the guard has labels: those that are listed, and at most 1,025 others.
package console

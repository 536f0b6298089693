package gosdk

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// NewClient returns a client, as [mcp.NewClient] does, whose calls of other servers' tools are guarded
// with g, as by [ClientMiddleware]. In addition, a question of the server to the client's user during a call
// (elicitation, sampling, or the request for the roots) pauses the call's timeout, as [resilience.Pause] does, and
// such a call isn't retried, which would repeat the question. A server that goes on asking keeps the call.
//
// Other code that waits for people calls resilience.Pause itself: the Authorize method of an auth.OAuthHandler, and the
// handler of an elicitation in URL mode, whose answer comes before the person has done anything. Protocols before
// 2026-07-28 don't let that handler pause the call.
//
// Protocols before 2026-07-28 don't tell which call a question belongs to. It then pauses all calls of
// its session that are under way.
//
// options may be nil, and isn't changed. NewClient panics if g is nil, and where mcp.NewClient does.
func NewClient(
	impl *mcp.Implementation, options *mcp.ClientOptions, g *resilience.Guard, opts ...Option,
) *mcp.Client {
	q := &questions{attempts: make(map[mcp.Session]map[*context.Context]bool)}
	guarded := newClientMiddleware(g, q, opts)

	client := mcp.NewClient(impl, withPauses(options))
	client.AddSendingMiddleware(guarded)
	client.AddReceivingMiddleware(q.middleware)
	return client
}

// withPauses returns a copy of options whose handlers pause the call that they are called in. Since
// protocol 2026-07-28, that is how the SDK calls them.
func withPauses(options *mcp.ClientOptions) *mcp.ClientOptions {
	if options == nil {
		return nil
	}

	o := *options
	o.ElicitationHandler = pausing(o.ElicitationHandler)
	//lint:ignore SA1019 clients still answer requests for sampling
	o.CreateMessageHandler = pausing(o.CreateMessageHandler)
	//lint:ignore SA1019 clients still answer requests for sampling
	o.CreateMessageWithToolsHandler = pausing(o.CreateMessageWithToolsHandler)
	return &o
}

func pausing[Req, Res any](handler func(context.Context, Req) (Res, error)) func(context.Context, Req) (Res, error) {
	if handler == nil {
		return nil
	}

	return func(ctx context.Context, req Req) (Res, error) {
		defer resilience.Pause(ctx)()
		return handler(ctx, req)
	}
}

// questions relates what servers ask to the calls of a client. A nil *questions does nothing. It is safe
// for concurrent use.
type questions struct {
	mu       sync.Mutex
	attempts map[mcp.Session]map[*context.Context]bool // those under way
}

// begin begins an attempt with the context ctx, and returns what ends it.
func (q *questions) begin(session mcp.Session, ctx context.Context) (end func()) {
	if q == nil {
		return func() {}
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	if q.attempts[session] == nil {
		q.attempts[session] = make(map[*context.Context]bool)
	}
	q.attempts[session][&ctx] = true

	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.attempts[session], &ctx)
		if len(q.attempts[session]) == 0 {
			delete(q.attempts, session)
		}
	}
}

// pause pauses all calls of a session until resume is called.
func (q *questions) pause(session mcp.Session) (resume func()) {
	q.mu.Lock()
	attempts := slices.Collect(maps.Keys(q.attempts[session]))
	q.mu.Unlock()

	var resumes []func()
	for _, ctx := range attempts {
		resumes = append(resumes, resilience.Pause(*ctx))
	}
	return func() {
		for _, resume := range resumes {
			resume()
		}
	}
}

// middleware is receiving middleware. Before protocol 2026-07-28, servers send their questions as
// requests of their own.
func (q *questions) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if asksPerson(method) {
			defer q.pause(req.GetSession())()
		}
		return next(ctx, method, req)
	}
}

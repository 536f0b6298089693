package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed8d1e2389/resilience"
)

// clientTimeout is when the clients of the agents give up on a call, and what they then say.
const (
	clientTimeout = 60 * time.Second
	timeoutText   = "MCP error -32001: Request timed out"
	reconnecting  = 10 * time.Millisecond
)

// run lets agents of one kind work with a server of one kind, in the world of a seed. It returns when all tasks have
// ended. It belongs into a synctest bubble.
func run(seed uint64, a agent, k kind) (result, error) {
	w := newWorld(seed)
	server, stop := k.start(w)
	defer func() {
		stop()
		time.Sleep(time.Minute) // until the last Probe has ended
	}()

	workers := make([]*worker, agentsOfARun)
	for i := range workers {
		workers[i] = newWorker(seed, uint64(i), a, w)
		session, err := connect(server)
		if err != nil {
			return result{}, err
		}
		defer session.Close()
		workers[i].session = session
	}

	var wg sync.WaitGroup
	errs := make([]error, len(workers))
	for i, worker := range workers {
		wg.Go(func() { errs[i] = worker.work() })
	}
	wg.Wait()
	return account(w, workers), errors.Join(errs...)
}

// connect gives an agent a session of its own.
func connect(server *mcp.Server) (*mcp.ClientSession, error) {
	ctx := context.Background()
	serverSide, clientSide := mcp.NewInMemoryTransports()
	if _, err := server.Connect(ctx, serverSide, nil); err != nil {
		return nil, err
	}
	return mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1.0.0"}, nil).Connect(ctx, clientSide, nil)
}

// A worker is an agent at work. It makes one call at a time.
type worker struct {
	agent   agent
	world   *world
	session *mcp.ClientSession
	rng     *rand.Rand
	tasks   []*task
	avoided map[string]time.Duration // tools, and until when the agent avoids them

	calls, wasted int
	silence       time.Duration // the longest
	read          int           // bytes of the text of failures
}

func newWorker(seed, n uint64, a agent, w *world) *worker {
	rng := rand.New(rand.NewPCG(seed, 1000+n))
	worker := &worker{
		agent: a, world: w, rng: rand.New(rand.NewPCG(seed, 2000+n)), avoided: map[string]time.Duration{},
	}
	at := time.Duration(0)
	for i := range tasksOfAnAgent {
		at += between(rng, minGap, maxGap)
		worker.tasks = append(worker.tasks, &task{
			id: fmt.Sprintf("%d-%d", n, i), given: at, append: rng.IntN(2) == 0,
		})
	}
	return worker
}

// work ends all tasks.
func (w *worker) work() error {
	for t := w.next(); t != nil; t = w.next() {
		time.Sleep(w.readyAt(t) - w.now())
		time.Sleep(turn(w.rng))
		if w.now() > t.given+patience {
			t.end, t.ended = expired, w.now()
			continue
		}
		if err := w.call(t); err != nil {
			return err
		}
	}
	return nil
}

// next returns the task to go on with: of those that the agent can go on with now, the one that was given first, or
// else the one with which it can go on first. It returns nil if all have ended.
func (w *worker) next() *task {
	var open []*task
	for _, t := range w.tasks {
		if t.end == pending {
			open = append(open, t)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return slices.MinFunc(open, func(a, b *task) int { return cmp.Compare(w.readyAt(a), w.readyAt(b)) })
}

// readyAt returns when the agent can go on with a task: now, at the earliest.
func (w *worker) readyAt(t *task) time.Duration {
	return max(t.given, t.after, w.avoided[t.tool().name], w.now())
}

// call makes the call of the task's current step, and does what the agent decides.
func (w *worker) call(t *task) error {
	t.wrote = t.wrote || t.step == writing
	ctx, cancel := context.WithTimeout(context.Background(), clientTimeout)
	defer cancel()
	start := w.now()
	res, err := w.send(ctx, &mcp.CallToolParams{Name: t.tool().name, Arguments: input{t.id}})
	w.calls++
	w.silence = max(w.silence, w.now()-start)

	f := failure{step: t.step, text: timeoutText}
	switch {
	case err != nil && ctx.Err() == nil:
		return err // no server should cause that
	case err == nil && !res.IsError:
		if t.succeeded(textOf(res)) {
			t.end, t.ended = completed, w.now()
		}
		return nil
	case err == nil:
		f.text, f.guidance = textOf(res), guidanceOf(res)
	}

	w.wasted++
	w.read += len(f.text)
	t.tries[t.step]++
	f.tries = t.tries[t.step]
	w.do(t, w.agent.decide(f))
	return nil
}

// send sends a request. One in ten responses of a client that re-sends breaks off: it cancels the request and sends it
// again, as protocol 2026-07-28 demands.
func (w *worker) send(ctx context.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	for w.agent.resends && w.rng.IntN(10) == 0 {
		stream, broken := context.WithTimeout(ctx, latency(w.rng))
		res, err := w.session.CallTool(stream, params)
		broken()
		if err == nil || stream.Err() == nil || ctx.Err() != nil {
			return res, err
		}
		time.Sleep(reconnecting)
	}
	return w.session.CallTool(ctx, params)
}

// do does what the agent has decided.
func (w *worker) do(t *task, d decision) {
	switch {
	case d.avoid:
		w.avoided[t.tool().name] = w.now() + d.after
	case d.meanwhile:
		t.after = w.now() + d.after
	}

	switch {
	case d.do == giveUp || t.tries[t.step] >= maxTries:
		t.end, t.ended = abandoned, w.now()
		return
	case d.do == check:
		t.step = checking
	}
	if !d.avoid && !d.meanwhile {
		time.Sleep(d.after)
	}
}

func (w *worker) now() time.Duration { return time.Since(w.world.start) }

// textOf returns what a host shows to the model.
func textOf(res *mcp.CallToolResult) string {
	var texts []string
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// guidanceOf returns the guidance in the _meta of a result, or nil.
func guidanceOf(res *mcp.CallToolResult) *guidance {
	meta, ok := res.Meta[resilience.MetaError]
	if !ok {
		return nil
	}
	g := &guidance{}
	text, err := json.Marshal(meta)
	if err != nil || json.Unmarshal(text, g) != nil {
		return nil
	}
	return g
}

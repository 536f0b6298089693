package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

const toolName = "fetch"

// An outcome is how a call ended for the agent that made it.
type outcome int

const (
	succeeded outcome = iota
	advised           // failed, and the agent was told what to do next
	failed            // failed with no more than the tool's own error
	gaveUp            // not answered in time: the client stopped waiting
	outcomes
)

var outcomeNames = [outcomes]string{"succeeded", "failed, with advice", "failed, without advice", "client gave up"}

// A record is what became of a call.
type record struct {
	at, took time.Duration // at: since the start
	outcome  outcome
}

// A change is one of the breaker's.
type change struct {
	at time.Duration
	to resilience.State
}

// A result is what became of one server in the outage.
type result struct {
	records []record        // of each call of the schedule, by its number
	sent    []time.Duration // when the tool called the backend, whether or not there was one
	changes []change        // none without a guard
	reached traffic
}

// drive takes an unguarded and a guarded server through the same outage, at the same
// time.
func drive(ctx context.Context, cfg config) (unguarded, guarded result, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	calls, phases := schedule(cfg), outage(cfg)
	b := &backend{calls: calls, broken: cancel, traffic: map[string]*traffic{}}
	if err := b.set(answers); err != nil {
		return result{}, result{}, err
	}
	defer func() { _ = b.set(dead) }()

	without := newTrial("unguarded", cfg.agents, len(calls))
	with := newTrial("guarded", cfg.agents, len(calls))
	guard, err := resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{toolName: {
			Effect:  resilience.ReadOnly,
			Timeout: cfg.limit,
			// The delays between retries are random, and the picture is to be repeatable.
			Retry: &resilience.Retry{MaxRetries: -1},
		}},
		Breaker: resilience.BreakerConfig{Cooldown: cfg.cooldown, OnChange: with.changed},
	})
	if err != nil {
		return result{}, result{}, err
	}
	gosdk.Protect(with.server, guard) // the one difference

	trials := []*trial{without, with}
	for _, t := range trials {
		defer t.close()
		t.addTool(b.url())
		if err := t.connect(ctx); err != nil {
			return result{}, result{}, err
		}
	}
	start := time.Now()
	without.start, with.start = start, start
	var wg sync.WaitGroup
	wg.Go(func() { b.live(ctx, start, phases) })
	// The agents don't heed the advice that they get, and call again when they would have
	// anyway. That is the worst case for the guard, and it makes a fair comparison: both
	// servers are asked the very same at the very same time. Agents that wait as they are
	// told only make fewer calls.
	for n, c := range calls {
		if !sleepUntil(ctx, start.Add(c.at)) {
			break
		}
		for _, t := range trials {
			wg.Go(func() {
				if err := t.call(ctx, n, c.agent, cfg.patience); err != nil {
					cancel(err)
				}
			})
		}
	}
	wg.Wait()
	sleepUntil(ctx, start.Add(phases[len(phases)-1].to))
	if ctx.Err() != nil {
		return result{}, result{}, context.Cause(ctx)
	}
	return without.end(b), with.end(b), nil
}

// A trial is one server on its way through the outage.
type trial struct {
	name     string
	start    time.Time
	server   *mcp.Server
	http     http.Client
	sessions []*mcp.ClientSession // one for each agent
	records  []record

	mu      sync.Mutex // guards what follows
	sent    []time.Duration
	changes []change
}

func newTrial(name string, agents, calls int) *trial {
	return &trial{
		name:     name,
		server:   mcp.NewServer(&mcp.Implementation{Name: name, Version: "1.0.0"}, nil),
		http:     http.Client{Transport: &http.Transport{}},
		sessions: make([]*mcp.ClientSession, agents),
		records:  make([]record, calls),
	}
}

type fetchInput struct {
	Call int `json:"call" jsonschema:"the number of the call"`
}

type fetchOutput struct {
	Text string `json:"text"`
}

// addTool registers the tool. Nothing in it knows of the guard.
func (t *trial) addTool(backend string) {
	tool := &mcp.Tool{Name: toolName, Description: "Ask the backend", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}
	mcp.AddTool(t.server, tool, func(ctx context.Context, _ *mcp.CallToolRequest, in fetchInput) (*mcp.CallToolResult, fetchOutput, error) {
		url := fmt.Sprintf("%s/%s/%d", backend, t.name, in.Call)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, fetchOutput{}, err
		}
		t.sending()
		res, err := t.http.Do(req)
		if err != nil {
			return nil, fetchOutput{}, err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err == nil && res.StatusCode != http.StatusOK {
			err = errors.New(res.Status)
		}
		return nil, fetchOutput{string(body)}, err
	})
}

// connect gives each agent a session of its own.
func (t *trial) connect(ctx context.Context) error {
	for agent := range t.sessions {
		serverSide, clientSide := mcp.NewInMemoryTransports()
		if _, err := t.server.Connect(ctx, serverSide, nil); err != nil {
			return err
		}
		client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1.0.0"}, nil)
		session, err := client.Connect(ctx, clientSide, nil)
		if err != nil {
			return err
		}
		t.sessions[agent] = session
	}
	return nil
}

func (t *trial) close() {
	for _, session := range t.sessions {
		if session != nil {
			_ = session.Close()
		}
	}
	t.http.CloseIdleConnections()
}

// call makes a call as a client does: it waits no longer than its patience. It returns
// an error if the call ended in a way that no server should let it end.
func (t *trial) call(ctx context.Context, n, agent int, patience time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	start := time.Now()
	res, err := t.sessions[agent].CallTool(limited, &mcp.CallToolParams{Name: toolName, Arguments: fetchInput{n}})
	r := record{at: start.Sub(t.start), took: time.Since(start)}
	switch {
	case err != nil && limited.Err() != nil:
		r.outcome = gaveUp
	case err != nil:
		return fmt.Errorf("%s server, call %d: %w", t.name, n, err)
	case !res.IsError:
		r.outcome = succeeded
	case hasAdvice(res):
		r.outcome = advised
	default:
		r.outcome = failed
	}
	t.records[n] = r
	return nil
}

// hasAdvice reports whether a failure tells the agent what happened and what to do next.
func hasAdvice(res *mcp.CallToolResult) bool {
	var advice struct {
		Code, Suggestion string
	}
	b, err := json.Marshal(res.Meta[resilience.MetaError])
	return err == nil && json.Unmarshal(b, &advice) == nil && advice.Code != "" && advice.Suggestion != ""
}

func (t *trial) sending() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent = append(t.sent, time.Since(t.start))
}

func (t *trial) changed(_ string, _, to resilience.State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes = append(t.changes, change{time.Since(t.start), to})
}

func (t *trial) end(b *backend) result {
	t.mu.Lock()
	defer t.mu.Unlock()
	return result{t.records, slices.Clone(t.sent), slices.Clone(t.changes), b.reached(t.name)}
}

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

// A kind is what stands between an MCP server's tool and the outage.
type kind int

const (
	unguarded kind = iota
	guarded        // a guard whose breaker asks the backend by a call
	probing        // a guard whose breaker asks it by a Probe
	kinds
)

var kindNames = [kinds]string{"without the guard", "with the guard", "with a Probe"}

// An outcome is how a call ended for the agent that made it.
type outcome int

const (
	succeeded outcome = iota
	guided            // failed, and the agent received guidance: what happened and what to do next
	failed            // failed with no more than the tool's own error
	gaveUp            // wasn't answered in time: the client stopped waiting
	outcomes
)

var outcomeNames = [outcomes]string{"succeeded", "failed, with guidance", "failed, without guidance", "client gave up"}

// A record says when a call was made, how long it took, and how it ended.
type record struct {
	at, took time.Duration // at is the time since the start
	outcome  outcome
}

// A change is a change of the breaker's state.
type change struct {
	at time.Duration
	to resilience.State
}

// A result is what happened to one server in the outage.
type result struct {
	records []record        // one for each call of the schedule
	sent    []time.Duration // when the tool called the backend, whether or not it listened; ordered by time
	probes  []time.Duration // when a Probe asked it; ordered by time
	changes []change        // empty without a guard
	reached traffic
}

// Results holds what happened to each server.
type results [kinds]result

// drive takes a server of each kind through the same outage, at the same time.
func drive(ctx context.Context, cfg config, network network) (all results, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	calls := schedule(cfg)
	b := &backend{network: network, calls: calls, fail: cancel, traffic: map[string]*traffic{}}
	if err := b.set(answers); err != nil {
		return results{}, err
	}
	defer func() { _ = b.set(dead) }()

	var trials []*trial
	for k := range kinds {
		t := newTrial(k, cfg, network)
		trials = append(trials, t)
		defer t.close()
		if err := t.protect(); err != nil { // the one difference
			return results{}, err
		}
		if err := t.connect(ctx); err != nil {
			return results{}, err
		}
	}

	start := time.Now()
	for _, t := range trials {
		t.start, t.records = start, make([]record, len(calls))
	}
	var wg sync.WaitGroup
	wg.Go(func() { b.live(ctx, start, outage(cfg)) })
	wg.Go(func() { load(ctx, start, calls, trials, cancel) })
	wg.Wait()
	sleepUntil(ctx, start.Add(length(cfg)))
	if ctx.Err() != nil {
		return results{}, context.Cause(ctx)
	}
	for k, t := range trials {
		all[k] = t.end(b)
	}
	return all, nil
}

// load asks every server for each of the calls at its time, and returns when all calls
// have ended. It calls fail with the errors.
//
// The agents ignore the guidance, and call again when they would have anyway. That is the
// worst case for the guard and a fair comparison: all servers receive the same calls at
// the same time. Agents that follow the guidance only make fewer calls.
func load(ctx context.Context, start time.Time, calls []call, trials []*trial, fail func(error)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for n, c := range calls {
		if !sleepUntil(ctx, start.Add(c.at)) {
			return
		}
		for _, t := range trials {
			wg.Go(func() {
				if err := t.call(ctx, n, c.agent); err != nil {
					fail(err)
				}
			})
		}
	}
}

// A trial takes one server through the outage.
type trial struct {
	kind     kind
	name     string
	cfg      config
	start    time.Time
	server   *mcp.Server
	http     http.Client
	sessions []*mcp.ClientSession // one for each agent
	records  []record             // one for each call

	mu      sync.Mutex // guards what follows
	sent    []time.Duration
	probes  []time.Duration
	changes []change
}

func newTrial(kind kind, cfg config, network network) *trial {
	name := [kinds]string{"unguarded", "guarded", "probing"}[kind]
	t := &trial{
		kind:   kind,
		name:   name,
		cfg:    cfg,
		server: mcp.NewServer(&mcp.Implementation{Name: name, Version: "1.0.0"}, nil),
		http:   http.Client{Transport: &http.Transport{DialContext: network.dial}},
	}
	t.addTool()
	return t
}

type fetchInput struct {
	Call int `json:"call" jsonschema:"the number of the call"`
}

type fetchOutput struct {
	Text string `json:"text"`
}

// addTool adds the tool. Nothing in it depends on the guard.
func (t *trial) addTool() {
	tool := &mcp.Tool{
		Name:        toolName,
		Description: "Ask the backend",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
	}
	mcp.AddTool(t.server, tool, func(ctx context.Context, _ *mcp.CallToolRequest, in fetchInput) (
		*mcp.CallToolResult, fetchOutput, error,
	) {
		text, err := t.fetch(ctx, in.Call)
		return nil, fetchOutput{text}, err
	})
}

func (t *trial) fetch(ctx context.Context, call int) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://backend/%s/%d", t.name, call), nil)
	if err != nil {
		return "", err
	}

	t.note(&t.sent)
	res, err := t.http.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()

	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return string(body), err
}

// protect puts the tool under the guard that the server's kind has.
func (t *trial) protect() error {
	if t.kind == unguarded {
		return nil
	}

	breaker := resilience.BreakerConfig{Cooldown: t.cfg.cooldown}
	if t.kind == probing {
		breaker.Probe, breaker.ProbeInterval = t.probe(), t.cfg.probeInterval
	}
	guard, err := resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{toolName: {
			Effect:  resilience.ReadOnly,
			Timeout: t.cfg.timeout,
			// The delays between retries are random, and the picture must be repeatable.
			Retry: &resilience.Retry{MaxRetries: -1},
		}},
		Breaker:   breaker,
		Observers: []resilience.Observer{{Breaker: t.changed}},
	})
	if err != nil {
		return err
	}
	gosdk.Protect(t.server, guard)
	return nil
}

// connect gives each agent a session of its own.
func (t *trial) connect(ctx context.Context) error {
	for range t.cfg.agents {
		serverSide, clientSide := mcp.NewInMemoryTransports()
		if _, err := t.server.Connect(ctx, serverSide, nil); err != nil {
			return err
		}
		client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1.0.0"}, nil)
		session, err := client.Connect(ctx, clientSide, nil)
		if err != nil {
			return err
		}
		t.sessions = append(t.sessions, session)
	}
	return nil
}

func (t *trial) close() {
	for _, session := range t.sessions {
		_ = session.Close()
	}
	t.http.CloseIdleConnections()
}

// call makes a call as an agent's client does, which stops waiting after its timeout. It returns
// an error only if the call ended in a way that no server should cause.
func (t *trial) call(ctx context.Context, n, agent int) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.clientTimeout)
	defer cancel()
	start := time.Now()
	res, err := t.sessions[agent].CallTool(ctx, &mcp.CallToolParams{Name: toolName, Arguments: fetchInput{n}})

	r := record{at: start.Sub(t.start), took: time.Since(start)}
	switch {
	case err != nil && ctx.Err() != nil:
		r.outcome = gaveUp
	case err != nil:
		return fmt.Errorf("%s server, call %d: %w", t.name, n, err)
	case !res.IsError:
		r.outcome = succeeded
	case hasGuidance(res):
		r.outcome = guided
	default:
		r.outcome = failed
	}
	t.records[n] = r
	return nil
}

// hasGuidance reports whether a failure tells the agent what happened and what to do next.
func hasGuidance(res *mcp.CallToolResult) bool {
	var guidance struct {
		Code, Suggestion string
	}
	b, err := json.Marshal(res.Meta[resilience.MetaError])
	return err == nil && json.Unmarshal(b, &guidance) == nil && guidance.Code != "" && guidance.Suggestion != ""
}

// note appends the current time to a list of the trial's.
func (t *trial) note(times *[]time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*times = append(*times, time.Since(t.start))
}

// changed records a change of the breaker.
func (t *trial) changed(e resilience.BreakerChange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes = append(t.changes, change{e.Time.Sub(t.start), e.To})
}

// end returns the result, once all calls have ended.
func (t *trial) end(b *backend) result {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.sent)
	slices.Sort(t.probes)
	return result{t.records, slices.Clone(t.sent), slices.Clone(t.probes), slices.Clone(t.changes), b.reached(t.name)}
}

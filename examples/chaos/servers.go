package main

import (
	"context"
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
	"golang.org/x/sync/errgroup"
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

// drive takes a server of each kind through the same outage, at the same time.
func drive(ctx context.Context, cfg config, network network) (all results, err error) {
	calls := schedule(cfg)
	b := &backend{network: network, calls: calls}
	if err := b.set(answers); err != nil {
		return all, err
	}
	defer func() { _ = b.set(dead) }()

	var trials [kinds]*trial
	for k := range kinds {
		t := newTrial(cfg, network, len(calls))
		trials[k] = t
		defer t.close()
		if err := t.protect(k); err != nil { // the one difference
			return all, err
		}
		if err := t.connect(ctx); err != nil {
			return all, err
		}
	}

	start := time.Now()
	for _, t := range trials {
		t.start = start
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.live(ctx, start, cfg.phases) })
	group.Go(func() error { return load(ctx, start, calls, trials[:]) })
	if err := group.Wait(); err != nil {
		return all, err
	}
	for k, t := range trials {
		all[k] = t.result()
	}
	return all, nil
}

// load asks every server for each of the calls at its time, and returns when all calls have ended.
//
// The agents ignore the guidance, and call again when they would have anyway. That is the worst case for the guard and
// a fair comparison: all servers receive the same calls at the same time. Agents that follow the guidance only make
// fewer calls.
func load(ctx context.Context, start time.Time, calls []call, trials []*trial) error {
	var group errgroup.Group
	for n, c := range calls {
		if !sleepUntil(ctx, start.Add(c.at)) {
			break
		}
		for _, t := range trials {
			group.Go(func() error { return t.call(ctx, n, c.agent) })
		}
	}
	return errors.Join(group.Wait(), ctx.Err())
}

// A trial takes one server through the outage.
type trial struct {
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

func newTrial(cfg config, network network, calls int) *trial {
	t := &trial{
		cfg:     cfg,
		server:  mcp.NewServer(&mcp.Implementation{Name: "chaos", Version: "1.0.0"}, nil),
		http:    http.Client{Transport: &http.Transport{DialContext: network.dial}},
		records: make([]record, calls),
	}
	mcp.AddTool(t.server, &mcp.Tool{Name: toolName}, func(ctx context.Context, _ *mcp.CallToolRequest, in fetchInput) (
		*mcp.CallToolResult, any, error,
	) {
		text, err := t.fetch(ctx, in.Call)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, err
	})
	return t
}

type fetchInput struct {
	Call int `json:"call" jsonschema:"the number of the call"`
}

// fetch asks the backend. Nothing in it depends on the guard.
func (t *trial) fetch(ctx context.Context, call int) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://backend/%d", call), nil)
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

// protect puts the tool under the guard that a server of that kind has.
func (t *trial) protect(k kind) error {
	if k == unguarded {
		return nil
	}
	breaker := resilience.BreakerConfig{Cooldown: t.cfg.cooldown}
	if k == probing {
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

// probe returns a Probe that asks for the backend's health, over the same network as the calls. The library draws the
// times between Probes, so two pictures differ a little.
func (t *trial) probe() func(context.Context) error {
	client := &http.Client{Transport: t.http.Transport, Timeout: t.cfg.probeInterval / 2}
	probe := resilience.ProbeURL("http://backend"+healthPath, client)
	return func(ctx context.Context) error {
		t.note(&t.probes)
		return probe(ctx)
	}
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

// call makes a call as an agent's client does, which stops waiting after its timeout. It returns an error only if the
// call ended in a way that no server should cause.
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
		return fmt.Errorf("call %d: %w", n, err)
	case !res.IsError:
		r.outcome = succeeded
	case res.Meta[resilience.MetaError] != nil:
		r.outcome = guided
	default:
		r.outcome = failed
	}
	t.records[n] = r
	return nil
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

func (t *trial) result() result {
	t.mu.Lock()
	defer t.mu.Unlock()
	return result{t.records, slices.Clone(t.sent), slices.Clone(t.probes), slices.Clone(t.changes)}
}

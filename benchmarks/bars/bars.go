package main

import (
	"context"
	"errors"
	"time"

	"github.com/seed8d1e2389/resilience/benchmarks/peers"
	"github.com/seed8d1e2389/resilience/benchmarks/servers"
)

const (
	guard       = "guard"
	cooperative = "guard-coop"
)

// bars returns what the guard is held to. README.md says why the bars are where they are.
func bars() []bar {
	plain, failing, retrying, request := of(peers.Default()), of(neverOpens()), of(withoutDelay()), of(peers.Default())
	open, many := of(opensAtOnce()), of(peers.Default())
	request.request = true
	failing.tool, retrying.tool, open.tool = fails, succeedsThird, fails
	many.settings.Tools = peers.ToolNames(1000)

	return []bar{
		plain.bar("success, enforced", guard, peers.FloorGoroutine, 1.45, 8),
		plain.bar("success, Cooperative", cooperative, peers.FloorTimeout, 2.35, 7),
		request.bar("request, enforced", guard, peers.FloorGoroutine, 1.40, 8),
		request.bar("request, Cooperative", cooperative, peers.FloorTimeout, 2.30, 7),

		plain.bar("success, enforced", guard, peers.Duties, 1.25, 8),
		plain.bar("success, Cooperative", cooperative, peers.DutiesCoop, 1.85, 7),
		request.bar("request, enforced", guard, peers.Duties, 1.25, 8),
		request.bar("request, Cooperative", cooperative, peers.DutiesCoop, 1.80, 7),

		plain.bar("success, enforced", guard, peers.Failsafe, 1.05, 8),
		plain.bar("success, Cooperative", cooperative, peers.Failsafe, 0.65, 7),
		failing.bar("failure, enforced", guard, peers.Failsafe, 1.45, 12),
		failing.bar("failure, Cooperative", cooperative, peers.Failsafe, 0.80, 7),
		retrying.bar("two retries, enforced", guard, peers.Failsafe, 1.10, 22),
		retrying.bar("two retries, Cooperative", cooperative, peers.Failsafe, 0.65, 13),
		open.bar("open breaker", guard, peers.Failsafe, 0.50, 2),
		plain.bar("success, enforced", guard, "hand", 1.05, 8),
		many.bar("one of 1,000 tools, enforced", guard, peers.Failsafe, 1.05, 8),

		plain.mcpBar("go-sdk", "enforced", servers.Guard, servers.Bare, 1.15, 232),
		plain.mcpBar("go-sdk", "enforced", servers.Guard, servers.Handoff, 1.15, 232),
		plain.mcpBar("go-sdk", "Cooperative", servers.Cooperative, servers.Bare, 1.15, 244),
		plain.mcpBar("mcp-go", "enforced", servers.Guard, servers.Bare, 1.40, 342),
		plain.mcpBar("mcp-go", "enforced", servers.Guard, servers.Handoff, 1.25, 342),
		plain.mcpBar("mcp-go", "Cooperative", servers.Cooperative, servers.Bare, 1.30, 346),
	}
}

// mcpBar returns a bar for whole calls of a server on an SDK.
func (b bar) mcpBar(sdk, what, mine, other string, maxRatio, maxAllocs float64) bar {
	b.what, b.maxRatio, b.maxAllocs = "a call of MCP, "+sdk+", "+what, maxRatio, maxAllocs
	for _, s := range servers.SDKs {
		if s.Name == sdk {
			b.guard, b.other = s.Only(mine), s.Only(other)
		}
	}
	return b
}

func of(s peers.Settings) bar {
	return bar{settings: s, tool: func() peers.Tool { return succeeds }}
}

func (b bar) bar(what, mine, other string, maxRatio, maxAllocs float64) bar {
	b.what, b.maxRatio, b.maxAllocs = what, maxRatio, maxAllocs
	b.guard, b.other = peers.Only(mine)[0], peers.Only(other)[0]
	return b
}

// neverOpens returns settings without retries, whose breaker stays closed.
func neverOpens() peers.Settings {
	s := peers.Default()
	s.Retries, s.Failures = 0, 1<<26 // failsafe-go keeps a bit for each failure
	return s
}

// opensAtOnce returns settings without retries, whose breaker opens at the first failure.
func opensAtOnce() peers.Settings {
	s := peers.Default()
	s.Retries, s.Failures, s.Cooldown = 0, 1, time.Minute
	return s
}

// withoutDelay returns settings whose retries follow at once.
func withoutDelay() peers.Settings {
	s := peers.Default()
	s.Delay = 0
	return s
}

// succeeds looks at its context, for which some peers have to make a channel.
func succeeds(ctx context.Context) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	default:
		return "a value", nil
	}
}

var errTool = errors.New("the tool failed")

func fails() peers.Tool {
	return func(context.Context) (string, error) { return "", errTool }
}

// succeedsThird returns a tool that fails twice before each success.
func succeedsThird() peers.Tool {
	calls := 0
	return func(context.Context) (string, error) {
		if calls++; calls%3 != 0 {
			return "", errTool
		}
		return "a value", nil
	}
}

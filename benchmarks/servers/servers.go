// Package servers makes peers of MCP servers: each call goes from a client to a server in the same process and back,
// and the server's only tool runs the function.
package servers

import (
	"context"
	"sync/atomic"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/benchmarks/peers"
)

// The names of the peers.
const (
	Guard       = "guard"      // a server under a guard
	Cooperative = "guard-coop" // the same with a Cooperative tool
	Bare        = peers.FloorBare
	Handoff     = peers.FloorGoroutine // a server whose tool runs on a goroutine of its own, with a timeout: the floor
)

// An SDK is one on which servers are built. Its connect starts a server with one tool under the guard, if that isn't
// nil, connects a client to it, and returns a call of the tool.
type SDK struct {
	Name    string
	connect func(*resilience.Guard, peers.Tool) (peers.Tool, error)
}

// SDKs are both.
var SDKs = []SDK{{"go-sdk", connectGoSDK}, {"mcp-go", connectMCPGo}}

// Peers are the servers on the SDK. Each serves one call at a time, and is never closed.
func (sdk SDK) Peers() []peers.Peer {
	guarded := func(cooperative bool) func(peers.Settings) peers.Do {
		return func(s peers.Settings) peers.Do { return sdk.start(peers.NewGuard(s, cooperative), nil) }
	}
	return []peers.Peer{
		{Name: Guard, New: guarded(false)},
		{Name: Cooperative, New: guarded(true)},
		{Name: Handoff, New: func(s peers.Settings) peers.Do {
			return sdk.start(nil, peers.Only(peers.FloorGoroutine)[0].New(s))
		}},
		{Name: Bare, New: func(peers.Settings) peers.Do { return sdk.start(nil, nil) }},
	}
}

// Only returns the peer of that name.
func (sdk SDK) Only(name string) peers.Peer {
	for _, p := range sdk.Peers() {
		if p.Name == name {
			return p
		}
	}
	panic("no such server: " + name)
}

// start starts a server whose tool calls a function by do, if that isn't nil.
func (sdk SDK) start(guard *resilience.Guard, do peers.Do) peers.Do {
	var current atomic.Pointer[peers.Tool]
	call, err := sdk.connect(guard, func(ctx context.Context) (string, error) {
		fn := *current.Load()
		if do != nil {
			return do(ctx, "tool", fn)
		}
		return fn(ctx)
	})
	if err != nil {
		panic(err)
	}

	return func(ctx context.Context, _ string, fn peers.Tool) (string, error) {
		current.Store(&fn)
		return call(ctx)
	}
}

package resilience

import (
	"encoding/json"
	"math"
	"time"
)

// Keys of the _meta field of MCP requests and results that the adapters use, and that an
// adapter of your own should use too. Their prefix is a reverse domain name, as MCP
// prefers.
const (
	// MetaError holds the JSON of an [*Error] in the _meta of a result with isError.
	MetaError = "io.github.seed8d1e2389.resilience/error"
	// MetaDebug turns debug on for a request: true or false.
	MetaDebug = "io.github.seed8d1e2389.resilience/debug"
	// MetaLimit is a request's own limit: a positive number of seconds, see [Limit].
	MetaLimit = "io.github.seed8d1e2389.resilience/limit"
)

// What the adapters' AddHealth adds to a server, both with [Guard.AgentHealth].
const (
	HealthTool     = "tool_health"
	HealthResource = "resilience://health"
)

// AgentHealth returns {"tools": […]}, the JSON of [Guard.Health] but for HealthTool itself.
// The last errors are left out: their words may be meant for another client.
func (g *Guard) AgentHealth() json.RawMessage {
	tools := make([]Health, 0, len(g.listed))
	for _, h := range g.Health() {
		if h.Tool != HealthTool {
			h.LastError = nil
			tools = append(tools, h)
		}
	}
	text, _ := json.Marshal(map[string]any{"tools": tools}) // it never fails
	return text
}

// Request is what is known of the MCP request that a call belongs to, for [Observer.Start].
type Request = RequestInfo

// ForRequest tells observers which request the call belongs to. The map in it is copied
// when the call begins; what it holds must not change.
func ForRequest(r Request) Option { return func(o *options) { o.request = &r } }

// HintedEffect is the effect of a tool with the annotations readOnlyHint and
// idempotentHint of MCP, both of which are false by default: NonIdempotent then.
func HintedEffect(readOnly, idempotent bool) Effect {
	switch {
	case readOnly:
		return ReadOnly
	case idempotent:
		return Idempotent
	default:
		return NonIdempotent
	}
}

// MetaOptions reads the wishes for one call from a request's _meta. Each must be
// allowed by the server's author: with debug an agent sees causes, and with a limit it
// may occupy a tool for as long as its MaxTimeout. What isn't allowed is ignored; what is
// allowed and makes no sense is a VALIDATION_ERROR, whose Tool is empty.
func MetaOptions(meta map[string]any, debug, limit bool) ([]Option, error) {
	var opts []Option
	if v, ok := meta[MetaDebug]; ok && debug {
		on, isBool := v.(bool)
		if !isBool {
			return nil, validationError("", "_meta[%q] must be true or false", MetaDebug)
		}
		if on {
			opts = append(opts, Debug())
		}
	}
	if v, ok := meta[MetaLimit]; ok && limit {
		d, ok := seconds(v)
		if !ok {
			return nil, validationError("", "_meta[%q] must be a positive number of seconds", MetaLimit)
		}
		opts = append(opts, Limit(d))
	}
	return opts, nil
}

// seconds reads a number as JSON decoders give it.
func seconds(v any) (time.Duration, bool) {
	var s float64
	switch v := v.(type) {
	case float64:
		s = v
	case int:
		s = float64(v)
	case int64:
		s = float64(v)
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return 0, false
		}
		s = f
	}
	switch ns := s * float64(time.Second); {
	case !(ns >= 1): // NaN too
		return 0, false
	case ns >= math.MaxInt64:
		return math.MaxInt64, true
	default:
		return time.Duration(ns), true
	}
}

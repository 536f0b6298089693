package resilience

import (
	"encoding/json"
	"math"
	"slices"
	"time"
)

// These are keys of the _meta field of MCP requests and results. The adapters use them, and an
// adapter of your own should too. Their prefix is a reverse domain name, as MCP prefers.
const (
	// MetaError is the key of error metadata in the _meta of a result with isError: the JSON
	// of an [*Error].
	MetaError = "io.github.seed8d1e2389.resilience/error"

	// MetaDebug turns debug on for a request. Its value is true or false.
	MetaDebug = "io.github.seed8d1e2389.resilience/debug"

	// MetaTimeout is a request's own timeout, as for [Timeout]. Its value is a positive number
	// of seconds.
	MetaTimeout = "io.github.seed8d1e2389.resilience/timeout"
)

// Request describes the MCP request that a call belongs to, for [ForRequest]. An adapter fills
// in what it knows. The zero value knows nothing and allows nothing.
type Request struct {
	RequestInfo // what observers receive

	// Received is when the request was received: the call's timeout counts from then, because an
	// adapter may have something to find out first. If that took more than half of the timeout, a
	// TIMEOUT isn't counted. Zero, and a time in the future, mean now.
	Received time.Time

	// Arguments are the arguments of the request, for the details of its error with debug. They
	// are redacted as they were before the tool ran. A json.RawMessage or a map[string]any is
	// used; anything else, which may be in use elsewhere, is ignored.
	Arguments any

	// Effect returns what is known elsewhere of the tool's effect, as by its MCP annotations.
	// It is called at most once for each call, on the goroutine of the call, if the tool isn't
	// listed in the Config and the call fails or is within another one. It must not block.
	// Config.Effect applies if it is nil, panics or returns EffectUnknown.
	Effect func() Effect

	// BreakerKey returns the key of the call's breaker, as for the option [BreakerKey], unless that gives one.
	// It is called once for each call, on the goroutine of the call, before the tool runs. It must not
	// block or call runtime.Goexit, which would end that goroutine: nothing can answer the call then. Nil, a panic
	// and "" mean the tool's own breaker.
	BreakerKey func() string

	// Unexplained is what a failure means of which nothing is known: neither the tool nor its error nor
	// its backend (see [ReportBackend]) has said. Zero means ClassTransient. Behind an MCP SDK, where a tool tells an
	// agent of its mistakes by failing, ClassNeutral is right. A call without a Request has that of the call around it,
	// as its context tells, even once that has ended, and ClassTransient if there is none.
	Unexplained Class

	// Unknown says that the server doesn't have the tool, as far as the adapter can tell, so that
	// an agent may have made up its name. Unless the Config lists it, it shares the breaker and the
	// counts that appear as "(others)" in Health.
	Unknown bool

	// AllowDebug allows the request to turn debug on, by MetaDebug. An agent then reads what
	// Config.Debug says.
	AllowDebug bool

	// AllowTimeout allows the request to choose its timeout, by MetaTimeout. It may then occupy
	// the tool for as long as the tool's MaxTimeout.
	AllowTimeout bool
}

// ForRequest applies to a call what is known of the MCP request that it belongs to, and the
// options in the request's _meta that the server allows. An option that isn't allowed is
// ignored. One that is allowed and malformed fails the call with VALIDATION_ERROR.
//
// Observers receive a copy of the map Meta; its values must not change.
func ForRequest(r Request) Option {
	return func(o *options) {
		o.request = &r.RequestInfo
		o.effect = r.Effect
		o.shared = r.Unknown
		o.unexplained = r.Unexplained
		o.keyOf = r.BreakerKey
		if !r.Received.IsZero() {
			o.elapsed = max(time.Since(r.Received), 0)
		}

		switch args := r.Arguments.(type) {
		case json.RawMessage:
			if len(args) > 0 {
				o.args = args
			}
		case map[string]any:
			Args(args)(o)
		}
		r.readMeta(o)
	}
}

// readMeta applies the options in the request's _meta.
func (r *Request) readMeta(o *options) {
	if v, ok := r.Meta[MetaDebug]; ok && r.AllowDebug {
		on, isBool := v.(bool)
		if !isBool {
			o.invalid = validationError("", "_meta[%q] must be true or false", MetaDebug)
			return
		}
		o.debug = o.debug || on
	}

	if v, ok := r.Meta[MetaTimeout]; ok && r.AllowTimeout {
		d, isSeconds := seconds(v)
		if !isSeconds {
			o.invalid = validationError("", "_meta[%q] must be a positive number of seconds", MetaTimeout)
			return
		}
		o.timeout, o.timeoutSet = d, true
	}
}

// seconds reads a number as JSON decoders return it.
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

// CheckTools compares the tools that a server has with those in Config.Tools. What the Config says of a
// name that the server doesn't have configures nothing, most likely because the name is misspelled:
// Config.Log receives a warning, once for each name. An adapter calls it when it knows all tools of a
// server. One that is added later, or that another server with the same guard has, is warned of in vain. It is safe
// for concurrent use.
func (g *Guard) CheckTools(names []string) {
	for name := range g.listed {
		if slices.Contains(names, name) {
			continue
		}
		if _, warned := g.missing.LoadOrStore(name, nil); !warned {
			g.warner.warn("Config.Tools has a tool that the server doesn't have", "tool", name)
		}
	}
}

// AgentHealth returns [Guard.Health] as JSON for an agent, {"tools": […]}. It leaves out the
// tools in omit, such as the one that returns this JSON, and the last errors and keys, which may
// be meant for another client.
//
// It also leaves out names that another client may have made up: a tool that isn't listed in the
// Config appears once a call of it has ended in a way that only a tool can bring about. A mistake of
// the caller's, which a call of an unknown tool is, doesn't show that there is a tool. Calls without
// [ForRequest] are the program's own, and always do.
func (g *Guard) AgentHealth(omit ...string) json.RawMessage {
	tools := make([]Health, 0, len(g.listed))
	for _, h := range g.Health() {
		if g.hasFound(h.Tool) && !slices.Contains(omit, h.Tool) {
			h.LastError, h.Keys = nil, nil
			tools = append(tools, h)
		}
	}

	text, _ := json.Marshal(map[string]any{"tools": tools}) // it never fails
	return text
}

// hasFound reports whether there certainly is a tool of that name.
func (g *Guard) hasFound(name string) bool {
	if g.listed[name] != nil {
		return true
	}

	s, _ := g.unlisted.get(name).(*toolState)
	if name == othersName {
		s = g.others
	}
	return s != nil && s.found.Load()
}

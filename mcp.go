package resilience

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// These are keys of the _meta field of MCP requests and results. The adapters use them, and an
// adapter of your own should too. Their prefix is a reverse domain name, as MCP prefers.
const (
	// MetaError is the key of error metadata in the _meta of a result with isError: the JSON
	// of an [*Error].
	MetaError = "io.github.seed8d1e2389.resilience/error"

	// MetaJoined is the key in the _meta of a result that belongs to an earlier call, which was the same (see
	// [Once]). Its value is true.
	MetaJoined = "io.github.seed8d1e2389.resilience/joined"

	// MetaDebug turns debug on for a request. Its value is true or false.
	MetaDebug = "io.github.seed8d1e2389.resilience/debug"

	// MetaTimeout is a request's own timeout. Its value is a positive number of seconds. It is
	// capped at the tool's MaxTimeout, or at the tool's timeout if that isn't set.
	MetaTimeout = "io.github.seed8d1e2389.resilience/timeout"
)

// Request describes the MCP request that a call belongs to, for [ForRequest]. Zero fields are unknown,
// or not allowed.
type Request struct {
	RequestInfo // what observers receive

	// Arguments are the arguments of the request, as for [Args]: a json.RawMessage or a map[string]any.
	// A value of another type is ignored, since it may be in use elsewhere.
	Arguments any

	// Input is what a multi-round-trip request has besides its arguments, its requestState and inputResponses.
	// Like the arguments, it distinguishes calls that aren't the same (see [Once]).
	Input any

	// Effect is the effect of the tool as it is known elsewhere, for example by its MCP annotations. It
	// applies if the tool isn't listed in the Config. EffectUnknown means Config.Effect.
	Effect Effect

	// BreakerKey returns the key of the call's breaker, as for the option [BreakerKey], unless that gives
	// one. It is called before the tool runs, and must be quick. Nil and "" mean the tool's own breaker.
	BreakerKey func() string

	// Unexplained is the class of a failure that neither its error nor a report explains (see
	// [ReportBackend]). Zero means ClassTransient. Behind an MCP SDK, where tools fail because of agents'
	// mistakes, ClassNeutral is right. A call without a Request takes it from the call around it.
	Unexplained Class

	// Unknown means that the server doesn't have the tool, as far as the adapter can tell: an agent may
	// have made up its name. Unless the Config lists it, it shares the state "(others)".
	Unknown bool

	// Caller identifies the agent, for [BreakerConfig].MaxHold and [Once]. Empty means the Session. If that is
	// empty, too, the agent isn't known: its calls aren't held, and none is the same as another.
	Caller string

	// MaxHeld is how many calls of one breaker may be held at once, since a held call takes a worker of the
	// server. Zero means 16.
	MaxHeld int

	// AllowDebug allows the request to turn debug on, by MetaDebug. The agent then reads the
	// details that Config.Debug describes.
	AllowDebug bool

	// AllowTimeout allows the request to choose its timeout, by MetaTimeout. It may then occupy
	// the tool for as long as the tool's MaxTimeout.
	AllowTimeout bool
}

// ForRequest describes the MCP request that the call belongs to. It also applies the options in the
// request's _meta that the Request allows. An option that isn't allowed is ignored; an option that is
// allowed but malformed fails the call with VALIDATION_ERROR.
//
// Observers receive a copy of the map Meta; its values must not change.
func ForRequest(r Request) Option {
	return func(o *options) {
		o.request = &r
		switch args := r.Arguments.(type) {
		case json.RawMessage:
			if len(args) > 0 {
				o.args = args
			}
		case map[string]any:
			o.args = args
		}
		r.readMeta(o)
	}
}

// readMeta applies the options in the request's _meta.
func (r *Request) readMeta(o *options) {
	if v, ok := r.Meta[MetaDebug]; ok && r.AllowDebug {
		on, isBool := v.(bool)
		o.debug = o.debug || on
		if !isBool {
			o.invalid = validationError("", "_meta[%q] must be true or false", MetaDebug)
		}
	}
	if v, ok := r.Meta[MetaTimeout]; ok && r.AllowTimeout {
		o.capped = true
		if o.timeout, o.timeoutSet = seconds(v); !o.timeoutSet {
			o.invalid = validationError("", "_meta[%q] must be a positive number of seconds", MetaTimeout)
		}
	}
}

// seconds reads a number as JSON decoders return it.
func seconds(v any) (d time.Duration, ok bool) {
	_, isText := v.(string)
	s, err := strconv.ParseFloat(fmt.Sprint(v), 64)
	ns := min(s*float64(time.Second), 1<<62) // 146 years, so that it can't overflow
	return time.Duration(ns), err == nil && !isText && ns >= 1
}

// CheckTools compares Config.Tools with the names of all tools of a server. A name that the server
// doesn't have is probably misspelled: Config.Log receives a warning, once for each name. It is safe
// for concurrent use.
func (g *Guard) CheckTools(names []string) {
	for name := range g.listed {
		if !slices.Contains(names, name) {
			g.warner.warnOnce("Config.Tools has a tool that the server doesn't have", "tool", name)
		}
	}
}

// AgentHealth returns [Guard.Health] as JSON for an agent, {"tools": […]}. It leaves out "(others)"
// and the tools in omit, such as the tool that returns this JSON. It also leaves out the last errors
// and the keys, which may be meant for another client.
func (g *Guard) AgentHealth(omit ...string) json.RawMessage {
	tools := make([]Health, 0, len(g.listed))
	for _, h := range g.Health() {
		if h.Tool != othersName && !slices.Contains(omit, h.Tool) {
			h.LastError, h.LastErrorTime, h.Keys = nil, time.Time{}, nil
			tools = append(tools, h)
		}
	}

	text, _ := json.Marshal(map[string]any{"tools": tools}) // it never fails
	return text
}

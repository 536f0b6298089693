package resilience

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Keys of the _meta field of MCP requests and results. A MetaTimeout is in seconds, and capped at the tool's
// MaxTimeout, or else its timeout.
const (
	MetaError   = "io.github.seed8d1e2389.resilience/error"   // of a result with isError: the JSON of an [*Error]
	MetaJoined  = "io.github.seed8d1e2389.resilience/joined"  // of a result: true if it is an earlier call's ([Once])
	MetaDebug   = "io.github.seed8d1e2389.resilience/debug"   // of a request: true turns debug on
	MetaTimeout = "io.github.seed8d1e2389.resilience/timeout" // of a request: its own timeout
)

// Request describes an MCP request for [ForRequest]. Zero fields are unknown.
type Request struct {
	RequestInfo // what observers receive

	Arguments  any           // as for [Args]: a json.RawMessage or a map[string]any; other types are ignored
	Input      any           // requestState and inputResponses of a multi-round-trip request, for [Once]
	Effect     Effect        // by the tool's annotations, unless the Config lists the tool with one
	BreakerKey func() string // returns the key if the option [BreakerKey] gives none; must be quick; may be nil

	// Unexplained is the class of a failure that neither its error nor a report explains (see [ReportBackend]). Zero
	// means ClassTransient. Behind an MCP SDK, where tools fail because of agents' mistakes, ClassNeutral is right.
	Unexplained Class

	Unknown      bool   // whether the server lacks the tool, which then has the state "(others)" unless it is listed
	Caller       string // the agent, for [BreakerConfig].MaxHold and [Once]; empty means the Session
	MaxHeld      int    // how many calls of one breaker may be held at once; 0 means 16
	AllowDebug   bool   // whether the request may turn debug on, by MetaDebug; see Config.Debug
	AllowTimeout bool   // whether the request may choose its timeout, by MetaTimeout, up to the tool's MaxTimeout
}

// ForRequest describes the MCP request that the call belongs to, and applies the options in its _meta that r allows. A
// malformed one is VALIDATION_ERROR.
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

// CheckTools writes a warning to Config.Log for each tool in Config.Tools that isn't in names, a server's tools.
func (g *Guard) CheckTools(names []string) {
	for name := range g.listed {
		if !slices.Contains(names, name) {
			g.warner.warnOnce("Config.Tools has a tool that the server doesn't have", "tool", name)
		}
	}
}

// AgentHealth returns [Guard.Health] as JSON for an agent, {"tools": […]}. It leaves out "(others)", the tools in omit,
// last errors and keys.
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

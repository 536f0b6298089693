package mcpgo

import (
	"context"
	"maps"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
)

// mcp-go serves stdio with five workers, of which calls that are held must not take most.
const (
	stdioSession     = "stdio" // the ID of the session
	maxHeldOverStdio = 2
)

// requestOf returns what the guard needs to know of a request.
func (h *handler) requestOf(ctx context.Context, req mcp.CallToolRequest) resilience.Request {
	var meta map[string]any
	if req.Params.Meta != nil {
		meta = req.Params.Meta.AdditionalFields
	}

	info := infoOf(ctx, meta)
	maxHeld := 0
	if info.Session == stdioSession {
		maxHeld = maxHeldOverStdio
	}
	arguments := req.GetRawArguments()
	if arguments == nil {
		arguments = map[string]any{} // they may be left out
	}
	return resilience.Request{
		RequestInfo:  info,
		Arguments:    arguments,
		Effect:       effectOf(lookUp(ctx, req.Params.Name)),
		BreakerKey:   h.breakerKeyOf(ctx, req),
		MaxHeld:      maxHeld,
		Unexplained:  resilience.ClassNeutral,
		AllowDebug:   h.options.allowDebug,
		AllowTimeout: h.options.allowTimeout,
	}
}

// breakerKeyOf returns a function that returns the key of the request, nil if requests have none.
func (h *handler) breakerKeyOf(ctx context.Context, req mcp.CallToolRequest) func() string {
	if f := h.options.breakerKey; f != nil {
		return func() string { return f(ctx, req) }
	}
	return nil
}

// infoOf returns what observers receive about the request.
func infoOf(ctx context.Context, meta map[string]any) resilience.RequestInfo {
	session := server.ClientSessionFromContext(ctx)
	info := resilience.RequestInfo{
		Method:   string(mcp.MethodToolsCall),
		Protocol: protocolOf(session, meta),
		Meta:     meta,
	}
	if session != nil {
		info.Session = session.SessionID()
	}
	return info
}

// protocolOf returns the protocol version that the request names, as requests do since
// protocol 2026-07-28, or else that of the session, which mcp-go knows since v1.0.
func protocolOf(session any, meta map[string]any) string {
	if version, ok := meta["io.modelcontextprotocol/protocolVersion"].(string); ok {
		return version
	}
	if s, ok := session.(interface{ ProtocolVersion() string }); ok {
		return s.ProtocolVersion()
	}
	return ""
}

// lookUp returns the named tool, or nil. It searches where mcp-go does, first in the session
// and then in the server.
func lookUp(ctx context.Context, name string) *mcp.Tool {
	if session, ok := server.ClientSessionFromContext(ctx).(server.SessionWithTools); ok {
		if tool, ok := session.GetSessionTools()[name]; ok {
			return &tool.Tool
		}
	}
	if s := server.ServerFromContext(ctx); s != nil {
		if tool := s.GetTool(name); tool != nil {
			return &tool.Tool
		}
	}
	return nil
}

// toolNames returns the names of all tools that a call may be of.
func toolNames(ctx context.Context, s *server.MCPServer) (names []string) {
	for name := range s.ListTools() {
		names = append(names, name)
	}
	if session, ok := server.ClientSessionFromContext(ctx).(server.SessionWithTools); ok {
		for name := range session.GetSessionTools() {
			names = append(names, name)
		}
	}
	return names
}

func effectOf(tool *mcp.Tool) resilience.Effect {
	if tool == nil {
		return resilience.EffectUnknown
	}

	isTrue := func(hint *bool) bool { return hint != nil && *hint } // MCP's default of both is false
	return resilience.EffectFromHints(isTrue(tool.Annotations.ReadOnlyHint), isTrue(tool.Annotations.IdempotentHint))
}

// runsAsTask reports whether mcp-go runs a call as a task, which outlives its request and isn't guarded. That the
// client asks for a task isn't enough: otherwise any client could bypass the guard.
func runsAsTask(ctx context.Context, req mcp.CallToolRequest) bool {
	if req.Params.Task == nil {
		return false
	}

	tool := lookUp(ctx, req.Params.Name)
	if tool == nil || tool.Execution == nil {
		return false
	}
	support := tool.Execution.TaskSupport
	return support == mcp.TaskSupportOptional || support == mcp.TaskSupportRequired
}

// cloneOf returns a copy of req for one attempt, since an abandoned tool may still change its arguments. The copy
// doesn't share the header, and no decoded JSON in the arguments and in the _meta.
func cloneOf(req mcp.CallToolRequest) mcp.CallToolRequest {
	req.Header = req.Header.Clone()
	req.Params.Arguments = cloneJSON(req.Params.Arguments)
	if req.Params.Meta != nil {
		meta := *req.Params.Meta
		meta.AdditionalFields, _ = cloneJSON(meta.AdditionalFields).(map[string]any)
		req.Params.Meta = &meta
	}
	return req
}

func cloneJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for key, value := range out {
			out[key] = cloneJSON(value)
		}
		return out

	case []any:
		out := slices.Clone(v)
		for i, value := range out {
			out[i] = cloneJSON(value)
		}
		return out
	}
	return v
}

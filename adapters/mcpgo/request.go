package mcpgo

import (
	"context"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
)

// requestOf returns what the guard needs to know of a request.
func (h *handler) requestOf(ctx context.Context, req mcp.CallToolRequest) resilience.Request {
	var meta map[string]any
	if req.Params.Meta != nil {
		meta = req.Params.Meta.AdditionalFields
	}

	return resilience.Request{
		RequestInfo:  infoOf(ctx, meta),
		Arguments:    req.GetRawArguments(),
		Effect:       effectOf(lookUp(ctx, req.Params.Name)),
		BreakerKey:   h.breakerKeyOf(ctx, req),
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

// toolNames returns the names of all tools that a call may be of. Without a server, as in a test of the
// middleware alone, those are the guard's.
func toolNames(ctx context.Context, g *resilience.Guard) (names []string) {
	s := server.ServerFromContext(ctx)
	if s == nil {
		for _, h := range g.Health() {
			names = append(names, h.Tool)
		}
		return names
	}

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

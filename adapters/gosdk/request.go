package gosdk

import (
	"encoding/json"
	"maps"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// cloneRequest returns a copy of req for one attempt: a handler may set fields of its request or its _meta, and an
// abandoned one may do so while the next attempt runs. Deeper values, such as the raw arguments and the headers, are
// shared, because handlers only read them.
func cloneRequest(req *mcp.CallToolRequest) *mcp.CallToolRequest {
	clone, params := *req, *req.Params
	params.Meta = maps.Clone(params.Meta)
	clone.Params = &params
	return &clone
}

// cloneClientRequest returns a copy of req for one attempt, since the SDK and other middleware may write to it. The
// params must be a *mcp.CallToolParams that isn't nil. Arguments become JSON, because the caller may change its own
// once the call has returned, before an abandoned attempt has sent them. A request of another type is returned as it
// is.
func cloneClientRequest(req mcp.Request) mcp.Request {
	params := *req.GetParams().(*mcp.CallToolParams)
	params.Meta = maps.Clone(params.Meta)
	if _, done := params.Arguments.(json.RawMessage); !done && params.Arguments != nil {
		if text, err := json.Marshal(params.Arguments); err == nil { // otherwise the SDK says so
			params.Arguments = json.RawMessage(text)
		}
	}

	switch req := req.(type) {
	case *mcp.ClientRequest[mcp.Params]: // the SDK's own
		return &mcp.ClientRequest[mcp.Params]{Session: req.Session, Params: &params}
	case *mcp.ClientRequest[*mcp.CallToolParams]:
		return &mcp.ClientRequest[*mcp.CallToolParams]{Session: req.Session, Params: &params}
	}
	return req
}

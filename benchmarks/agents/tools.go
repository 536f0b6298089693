package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A tool is a tool of the MCP servers, which all have the same ones. It makes one request.
type tool struct {
	name   string
	method string
	host   string
	path   string // before the number of the task
}

var (
	readRecord   = tool{"read_record", http.MethodGet, catalog, "/records/"}
	addEntry     = tool{"add_entry", http.MethodPost, ledger, "/entries/"}
	countEntries = tool{"count_entries", http.MethodGet, ledger, "/entries/"}
	setStatus    = tool{"set_status", http.MethodPut, board, "/status/"}
	getStatus    = tool{"get_status", http.MethodGet, board, "/status/"}

	tools = []tool{readRecord, addEntry, countEntries, setStatus, getStatus}
)

type input struct {
	Task string `json:"task"`
}

// newServer returns an MCP server with the tools. Its handlers return what fetch does, as most handlers do.
func newServer(fetch fetcher) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "office", Version: "1.0.0"}, nil)
	for _, t := range tools {
		mcp.AddTool(server, &mcp.Tool{Name: t.name},
			func(ctx context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
				text, err := fetch(ctx, t, "http://"+t.host+t.path+in.Task)
				if err != nil {
					return nil, nil, err
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
			})
	}
	return server
}

// A fetcher makes the request of a tool, and returns the body of the reply.
type fetcher func(ctx context.Context, t tool, url string) (string, error)

var errStatus = errors.New("unexpected status")

// fetchBy returns a fetcher that does no more than that.
func fetchBy(client *http.Client) fetcher {
	return func(ctx context.Context, t tool, url string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, t.method, url, nil)
		if err != nil {
			return "", err
		}
		res, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()

		body, err := io.ReadAll(res.Body)
		if err == nil && res.StatusCode != http.StatusOK {
			err = fmt.Errorf("%w %s: %s", errStatus, res.Status, body)
		}
		return string(body), err
	}
}

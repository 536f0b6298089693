package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-github/v82/github"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

// gitHub is a server like github-mcp-server. Its tools tell of all failures of the API by results.
var gitHub = subject{
	name:    "go-github",
	api:     gitHubAPI{},
	serve:   serveGitHub,
	good:    call{"list_issues", map[string]any{"repo": "wheel"}},
	missing: call{"list_issues", map[string]any{}},
	wrong:   call{"list_issues", map[string]any{"repo": "wheel", "state": "forgotten"}},
	write:   call{"create_issue", map[string]any{"repo": "wheel", "title": "It squeaks"}},
	limits:  true,
}

func serveGitHub(ctx context.Context, via http.RoundTripper, guard *resilience.Guard) (*agent, error) {
	if guard != nil {
		via = resilience.Transport(via) // the first line
	}
	const url = "http://github.example"
	client, err := github.NewClient(&http.Client{Transport: via}).WithEnterpriseURLs(url, url)
	if err != nil {
		return nil, err
	}

	server := mcp.NewServer(&mcp.Implementation{Name: "github", Version: "1.0.0"}, nil)
	if guard != nil {
		gosdk.Protect(server, guard) // the second line
	}

	mcp.AddTool(server, &mcp.Tool{Name: "list_issues", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(ctx context.Context, _ *mcp.CallToolRequest, in listIssues) (*mcp.CallToolResult, any, error) {
			switch in.State {
			case "", "open", "closed":
			default:
				return failed("state must be open or closed"), nil, nil
			}
			opts := &github.IssueListByRepoOptions{State: in.State}
			issues, _, err := client.Issues.ListByRepo(ctx, "octo", in.Repo, opts)
			if err != nil {
				return failed("failed to list issues: " + err.Error()), nil, nil
			}
			var titles []string
			for _, issue := range issues {
				titles = append(titles, issue.GetTitle())
			}
			return text(fmt.Sprintf("%d issues: %s", len(titles), strings.Join(titles, ", "))), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "create_issue"},
		func(ctx context.Context, _ *mcp.CallToolRequest, in createIssue) (*mcp.CallToolResult, any, error) {
			issue, _, err := client.Issues.Create(ctx, "octo", in.Repo, &github.IssueRequest{Title: &in.Title})
			if err != nil {
				return failed("failed to create the issue: " + err.Error()), nil, nil
			}
			return text("created: " + issue.GetTitle()), nil, nil
		})
	return connect(ctx, server)
}

type listIssues struct {
	Repo  string `json:"repo"`
	State string `json:"state,omitempty"`
}

type createIssue struct {
	Repo  string `json:"repo"`
	Title string `json:"title"`
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

func failed(s string) *mcp.CallToolResult {
	res := text(s)
	res.IsError = true
	return res
}

type gitHubAPI struct{}

func (gitHubAPI) good(r *http.Request) string {
	if r.Method == http.MethodPost {
		return `{"number": 2, "title": "It squeaks"}`
	}
	return `[{"number": 1, "title": "It wobbles"}]`
}

func (gitHubAPI) empty() string { return `[]` }

func (gitHubAPI) bad(status int) string {
	return fmt.Sprintf(`{"message": %q}`, http.StatusText(status))
}

package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGitleaksRemovesWhatScrubLeaves(t *testing.T) {
	secret := "shippo_" + "live_" + strings.Repeat("3f9a0c7d1b", 4)
	said := "label failed for " + secret + " and password=hunter2"
	require.Contains(t, resilience.Scrub(said), secret)

	server, err := newServer(func(context.Context, *mcp.CallToolRequest, input) (*mcp.CallToolResult, any, error) {
		return nil, nil, errors.New(said)
	})
	require.NoError(t, err)
	ours, theirs := mcp.NewInMemoryTransports()
	_, err = server.Connect(t.Context(), ours, nil)
	require.NoError(t, err)
	client, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), theirs, nil)
	require.NoError(t, err)
	defer func() { _ = client.Close() }()

	res, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "make", Arguments: input{Target: "all"}})
	require.NoError(t, err)
	assert.True(t, res.IsError)
	assert.Equal(t, "label failed for [REDACTED] and password=[REDACTED]", res.Content[0].(*mcp.TextContent).Text)
}

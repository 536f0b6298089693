// Package servertest tests the example servers: both must pass the same tests.
package servertest

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	"github.com/seed8d1e2389/resilience/examples/workspace"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Refused is the address of a backend that refuses connections.
const Refused = "http://127.0.0.1:1"

// A Server is an example server of type S.
type Server[S any] struct {
	Tools map[string]resilience.Tool // as in the server's Config
	New   func(*resilience.Guard, *workspace.Dir, *workspace.Fetcher) S

	// Add adds a tool to a server.
	Add func(s S, name, description string, work func(context.Context, struct{}) (struct{}, error))

	// Connect connects a client to a server until the test ends.
	Connect func(*testing.T, S) Call
}

// Call calls a tool. The JSON of what it returns is that of an MCP result.
type Call func(tool string, args, meta map[string]any) (any, error)

// Run runs all tests.
func Run[S any](t *testing.T, server Server[S]) {
	t.Run("failures are results", server.testFailuresAreResults)
	t.Run("the trace of a client continues", server.testTraceContinues)
}

// Workspace opens an empty directory, and returns a fetcher that may only fetch from Refused.
func Workspace(t *testing.T) (*workspace.Dir, *workspace.Fetcher) {
	t.Helper()
	dir, err := workspace.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, dir.Close()) })
	return dir, &workspace.Fetcher{Origins: []string{Refused}}
}

// A result is what the client receives.
type result struct {
	IsError           bool
	Content           []struct{ Type, Text string }
	StructuredContent json.RawMessage
	Meta              map[string]json.RawMessage `json:"_meta"`
}

// call calls a tool. A failure must not be a protocol error.
func (call Call) call(t *testing.T, tool string, args, meta map[string]any) (got result) {
	t.Helper()
	res, err := call(tool, args, meta)
	require.NoError(t, err, tool)

	b, err := json.Marshal(res)
	require.NoError(t, err, tool)
	require.NoError(t, json.Unmarshal(b, &got), tool)
	return got
}

// A failure reaches the client as a result with isError that carries error metadata.
func (s Server[S]) testFailuresAreResults(t *testing.T) {
	guard := resilience.Must(resilience.New(resilience.Config{Tools: s.Tools}))
	dir, fetcher := Workspace(t)
	call := s.Connect(t, s.New(guard, dir, fetcher))

	for _, tc := range []struct {
		tool string
		args map[string]any
		code resilience.Code // empty for success
	}{
		{"search", map[string]any{"text": "x"}, ""},
		{"read", map[string]any{"path": "../x"}, resilience.CodeValidation},
		{"fetch", map[string]any{"url": Refused + "/"}, resilience.CodeRetryExhausted},
	} {
		got := call.call(t, tc.tool, tc.args, nil)
		assert.Equal(t, tc.code != "", got.IsError, tc.tool)
		if tc.code == "" {
			assert.NotNil(t, got.StructuredContent, tc.tool)
			assert.Empty(t, got.Meta[resilience.MetaError], tc.tool)
			continue
		}

		assert.Nil(t, got.StructuredContent, tc.tool)
		require.NotEmpty(t, got.Content, tc.tool)
		for _, c := range got.Content {
			assert.Equal(t, "text", c.Type, tc.tool)
			assert.NotEmpty(t, c.Text, tc.tool)
			assert.NotContains(t, c.Text, "{", "%s: JSON is for programs, and in _meta", tc.tool)
		}
		metadata := string(got.Meta[resilience.MetaError])
		var e struct {
			Code resilience.Code
			Tool string
		}
		require.NoError(t, json.Unmarshal([]byte(metadata), &e), tc.tool)
		assert.Equal(t, tc.code, e.Code, tc.tool)
		assert.Equal(t, tc.tool, e.Tool)
	}
}

// The trace that a client sends in _meta continues in the server and in the tool.
func (s Server[S]) testTraceContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewInMemoryExporter()
		telemetry, err := otelresilience.New(otelresilience.Config{
			TracerProvider: trace.NewTracerProvider(trace.WithSyncer(spans)),
			MeterProvider:  noop.NewMeterProvider(),
		})
		require.NoError(t, err)
		guard := resilience.Must(resilience.New(resilience.Config{
			Tools:     s.Tools,
			Observers: []resilience.Observer{telemetry.Observer()},
		}))

		dir, fetcher := Workspace(t)
		server := s.New(guard, dir, fetcher)
		var inTool oteltrace.SpanContext
		s.Add(server, "x", "Fails", func(ctx context.Context, _ struct{}) (struct{}, error) {
			inTool = oteltrace.SpanContextFromContext(ctx)
			return struct{}{}, resilience.MarkPermanent(assert.AnError)
		})
		s.Connect(t, server).call(t, "x", map[string]any{}, map[string]any{
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		})
		require.NoError(t, guard.Flush(t.Context()))

		require.Len(t, spans.GetSpans(), 1)
		span := spans.GetSpans()[0]
		assert.Equal(t, "tools/call x", span.Name)
		assert.Equal(t, oteltrace.SpanKindServer, span.SpanKind)
		assert.Equal(t, "0af7651916cd43dd8448eb211c80319c", span.SpanContext.TraceID().String())
		assert.Equal(t, "b7ad6b7169203331", span.Parent.SpanID().String())
		assert.Equal(t, span.SpanContext.SpanID(), inTool.SpanID())
		assert.Contains(t, span.Attributes, attribute.String("error.type", "tool_error"))
		assert.Contains(t, span.Attributes, attribute.String("resilience.code", "TOOL_FAILED"))
	})
}

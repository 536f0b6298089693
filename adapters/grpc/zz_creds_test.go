package grpcresilience_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// userToken are one user's credentials, as credentials/oauth.TokenSource is: its error has no status.
type userToken struct{ err error }

func (u userToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return nil, u.err
}
func (userToken) RequireTransportSecurity() bool { return false }

func invoke(ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption) error {
	return conn.Invoke(ctx, "/backend/Call", new(pb.HealthCheckRequest), new(pb.HealthCheckResponse), opts...)
}

// Five calls of one user, whose token can't be refreshed, shut the tool for the others. The backend hears nothing of them.
func TestZZBadTokensShutTheTool(t *testing.T) {
	for name, bad := range map[string]error{
		"oauth2": errors.New(`oauth2: "invalid_grant" "Token has been expired or revoked."`),
		"status": status.Error(codes.InvalidArgument, "malformed token"),
	} {
		for toolSays, own := range map[string]bool{"gRPC's error": false, "its own words": true} {
			t.Run(name+", tool returns "+toolSays, func(t *testing.T) {
				_, address := listen(t, answering(1, nil))
				conn := connect(t, address)
				guard := resilience.Must(resilience.New(resilience.Config{
					Tools: map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly}},
					Retry: resilience.Retry{MaxRetries: -1},
				}))
				call := func(opts ...grpc.CallOption) error {
					_, err := resilience.Do(t.Context(), guard, "x", func(ctx context.Context) (int, error) {
						err := invoke(ctx, conn, opts...)
						if err != nil && own {
							err = errOwn
						}
						return 0, err
					}, resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})) // as gosdk and mcpgo
					return err
				}
				require.NoError(t, call())
				for range 5 {
					require.Error(t, call(grpc.PerRPCCredentials(userToken{bad})))
				}
				assert.NoError(t, call(), "another user")
			})
		}
	}
}

// Metadata that is larger than the server allows: 8 KiB is the default of gRPC for Java, for example. It may be the baggage
// of a client's _meta, which adapters/otel puts into the tool's context, and otelgrpc into the metadata.
func TestZZHeaderListTooLarge(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := grpc.NewServer(grpc.MaxHeaderListSize(8192), grpc.UnknownServiceHandler(answering(1, nil)))
	go func() { _ = srv.Serve(listener) }()
	t.Cleanup(srv.Stop)
	conn := connect(t, listener.Addr().String())
	require.NoError(t, unary(t.Context(), conn))
	assert.NotEqual(t, trouble, judge(t, t.Context(), resilience.ReadOnly, func(ctx context.Context) {
		t.Log(unary(metadata.AppendToOutgoingContext(ctx, "baggage", "k="+strings.Repeat("x", 8180)), conn))
	}))
}

// A proxy such as nginx answers 400 to a request whose headers are too large or malformed.
func TestZZProxyAnswers400(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{Protocols: &p, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
	})}
	go func() { _ = srv.Serve(listener) }()
	t.Cleanup(func() { srv.Close() })
	conn := connect(t, listener.Addr().String())
	assert.NotEqual(t, trouble, judge(t, t.Context(), resilience.ReadOnly, func(ctx context.Context) {
		t.Log(unary(ctx, conn))
	}))
}

package backends

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
)

func TestGRPC(t *testing.T) {
	listener := bufconn.Listen(1 << 16)
	srv := grpc.NewServer()
	pb.RegisterHealthServer(srv, health.NewServer())
	go func() { _ = srv.Serve(listener) }()
	defer srv.Stop()

	dial := func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
	conn, err := grpc.NewClient("passthrough:bufconn", append(GRPCOptions(),
		grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	defer conn.Close()

	check := func(service string) func(context.Context) {
		return func(ctx context.Context) {
			_, _ = pb.NewHealthClient(conn).Check(ctx, &pb.HealthCheckRequest{Service: service})
		}
	}
	assert.Equal(t, own, judge(t, check("")))
	assert.Equal(t, mistake, judge(t, check("no such service")))
	srv.Stop()
	assert.Equal(t, counted, judge(t, check("")))
}

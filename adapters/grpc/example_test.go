package grpcresilience_test

import (
	"context"
	"fmt"
	"net"

	"github.com/seed8d1e2389/resilience"
	grpcresilience "github.com/seed8d1e2389/resilience/adapters/grpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	pb "google.golang.org/grpc/health/grpc_health_v1"
)

func Example() {
	address, stop := startBackend()
	conn, err := grpc.NewClient(address,
		grpc.WithChainUnaryInterceptor(grpcresilience.UnaryClientInterceptor()),
		grpc.WithChainStreamInterceptor(grpcresilience.StreamClientInterceptor()),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	guard := resilience.Must(resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{"status": {Effect: resilience.ReadOnly, Breaker: "backend"}},
	}))
	backend := pb.NewHealthClient(conn)
	ask := resilience.Wrap(guard, "status", func(ctx context.Context, service string) (string, error) {
		answer, err := backend.Check(ctx, &pb.HealthCheckRequest{Service: service})
		if err != nil {
			return "", fmt.Errorf("can't tell how %q is", service) // in words of the tool's own
		}
		return answer.Status.String(), nil
	})

	fmt.Println(ask(context.Background(), ""))
	_, err = ask(context.Background(), "no such service") // NOT_FOUND: the caller's mistake
	fmt.Println(err)
	stop()
	_, err = ask(context.Background(), "") // UNAVAILABLE: the backend's trouble
	fmt.Println(err)
	fmt.Println("counted failures:", guard.Health()[0].ConsecutiveFailures)
	// Output:
	// SERVING <nil>
	// VALIDATION_ERROR: Tool 'status' rejected the request
	// RETRY_EXHAUSTED: Tool 'status' failed after 4 attempts
	// counted failures: 1
}

// startBackend starts a server with gRPC's health service, and returns its address and how to kill it.
func startBackend() (address string, stop func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	srv := grpc.NewServer()
	pb.RegisterHealthServer(srv, health.NewServer())
	go func() { _ = srv.Serve(listener) }()
	return listener.Addr().String(), srv.Stop
}

// A program whose tool asks a gRPC server for something that isn't there, and fails in words of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"

	"github.com/seed8d1e2389/resilience"
	grpcresilience "github.com/seed8d1e2389/resilience/adapters/grpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithChainUnaryInterceptor(grpcresilience.UnaryClientInterceptor()),
		grpc.WithChainStreamInterceptor(grpcresilience.StreamClientInterceptor()),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	guard := resilience.Must(resilience.New(resilience.Config{}))
	_, err = resilience.Do(context.Background(), guard, "search", func(ctx context.Context) (string, error) {
		request := &grpc_health_v1.HealthCheckRequest{Service: "none"}
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, request); err != nil {
			return "", errors.New("the index is corrupt")
		}
		return "found", nil
	})
	var failure *resilience.Error
	if !errors.As(err, &failure) || failure.Code != resilience.CodeValidation {
		log.Fatalf("got %v instead of VALIDATION_ERROR", err)
	}
	fmt.Printf("%s: %s\n", failure.Code, failure.Message)
}

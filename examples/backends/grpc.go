package backends

import (
	grpcresilience "github.com/seed8d1e2389/resilience/adapters/grpc"
	"google.golang.org/grpc"
)

// GRPCOptions are for grpc.NewClient.
func GRPCOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(grpcresilience.UnaryClientInterceptor()),
		grpc.WithChainStreamInterceptor(grpcresilience.StreamClientInterceptor()),
	}
}

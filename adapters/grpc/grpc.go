package grpcresilience

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/seed8d1e2389/resilience"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// UnaryClientInterceptor returns an interceptor that reports how each unary RPC ends to the guarded call
// that its context belongs to. It is safe for concurrent use, and any number of connections may share it.
func UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, conn, opts...)
		report(ctx, err)
		return err
	}
}

// StreamClientInterceptor returns an interceptor that reports the first message and the end of each stream
// to the guarded call that the context of the stream belongs to. It is safe for concurrent use, and any
// number of connections may share it.
func StreamClientInterceptor() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
		open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := open(ctx, desc, conn, method, opts...)
		if err != nil {
			report(ctx, err)
			return s, err
		}
		return &stream{ClientStream: s, ctx: ctx}, nil
	}
}

// A stream reports what it receives to the call that ctx belongs to. Only RecvMsg knows how a stream ends:
// SendMsg returns io.EOF or an error of the client's own, and Header no error at all. The stream's own context
// isn't used, since asking for it ends gRPC's retries.
type stream struct {
	grpc.ClientStream
	ctx      context.Context
	answered bool // belongs to RecvMsg, which isn't called concurrently
}

func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case err == io.EOF:
		report(s.ctx, nil)
	case err != nil:
		report(s.ctx, err)
	case !s.answered:
		s.answered = true
		report(s.ctx, nil)
	}
	return err
}

// report tells the call that ctx belongs to how an RPC has ended.
func report(ctx context.Context, err error) {
	if err == nil {
		resilience.ReportBackend(ctx, nil)
		return
	}

	s, _ := status.FromError(err) // Unknown, if it isn't a status
	if code := s.Code(); code <= codes.Unknown || code > codes.Unauthenticated {
		return
	}
	if s.Code() == codes.Internal && isOwn(s.Message()) {
		return
	}
	if after := retryDelay(s); after > 0 {
		err = &waitError{err, after}
	}
	resilience.ReportBackend(ctx, err)
}

// isOwn reports whether a message of status Internal is that of gRPC's client about a request that it
// can't send, such as one whose metadata or text isn't valid. Only its text tells.
func isOwn(message string) bool {
	for _, own := range []string{"grpc: error while marshaling", "header key ", "grpc: Compressor is not installed"} {
		if strings.HasPrefix(message, own) {
			return true
		}
	}
	return false
}

// retryDelay returns how long the server asks to wait, zero if it doesn't ask.
func retryDelay(s *status.Status) time.Duration {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// A waitError is an error whose status asks to wait. It is for reports only.
type waitError struct {
	error
	after time.Duration
}

func (w *waitError) Unwrap() error             { return w.error }
func (w *waitError) RetryAfter() time.Duration { return w.after }

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

// UnaryClientInterceptor returns an interceptor that reports each unary RPC, and how it ends, to the guarded
// call that its context belongs to. It is safe for concurrent use, and any number of connections may share it.
func UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		end := resilience.BeginRequest(ctx)
		err := invoke(ctx, method, req, reply, conn, opts...)
		if isAboutMessage(err) {
			resilience.ReportBackend(ctx, said(err)) // which doesn't end the request
		} else {
			end(said(err))
		}
		return err
	}
}

// StreamClientInterceptor returns an interceptor that reports each stream, its first message and its end to the
// guarded call that the context of the stream belongs to. It is safe for concurrent use, and any number of
// connections may share it.
func StreamClientInterceptor() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
		open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		end := resilience.BeginRequest(ctx)
		s, err := open(ctx, desc, conn, method, opts...)
		if err != nil {
			end(said(err))
			return s, err
		}
		return &stream{ClientStream: s, ctx: ctx}, nil
	}
}

// A stream reports what it receives to the call that ctx belongs to. Only RecvMsg knows how a stream ends:
// SendMsg returns io.EOF or an error of the client's own, and Header no error at all. The stream's own context
// isn't used, since asking for it ends gRPC's retries.
//
// The request that begins with the stream never ends: a server that rejects a message may have carried out earlier
// ones.
type stream struct {
	grpc.ClientStream
	ctx      context.Context
	answered bool // belongs to RecvMsg, which isn't called concurrently
}

func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case err == io.EOF:
		resilience.ReportBackend(s.ctx, nil)
	case err != nil:
		resilience.ReportBackend(s.ctx, said(err))
	case !s.answered:
		s.answered = true
		resilience.ReportBackend(s.ctx, nil)
	}
	return err
}

// said returns what to report of an RPC that has ended with err: nil is a good answer, and context.Canceled
// says nothing.
func said(err error) error {
	if err == nil {
		return nil
	}

	s, _ := status.FromError(err) // Unknown, if it isn't a status
	if code := s.Code(); code <= codes.Unknown || code > codes.Unauthenticated {
		return context.Canceled
	}
	if isOwn(s) {
		return context.Canceled
	}
	if after := retryDelay(s); after > 0 {
		return &waitError{err, after}
	}
	return err
}

// isAboutMessage reports whether err is about a message that is too large, or compressed in an unknown way. That
// may be the answer of a server that has carried out the request. (The last text is that of servers in Rust.)
func isAboutMessage(err error) bool {
	s, _ := status.FromError(err)
	return s.Code() == codes.ResourceExhausted || strings.HasPrefix(s.Message(), "grpc: ") ||
		strings.Contains(s.Message(), "encoded message length too large")
}

// isOwn reports whether a status is that of gRPC's client about a request that it can't send, such as one whose
// metadata, text or token isn't valid. Only its text tells.
func isOwn(s *status.Status) bool {
	if s.Code() != codes.Internal && s.Code() != codes.Unauthenticated {
		return false
	}
	for _, own := range []string{
		"grpc: error while marshaling", "header key ", "there is an empty key in the header",
		"grpc: Compressor is not installed", "header list size to send ",
		"transport: per-RPC creds failed", "transport: received per-RPC creds error",
		"transport: cannot send secure credentials on an insecure connection",
	} {
		if strings.HasPrefix(s.Message(), own) {
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

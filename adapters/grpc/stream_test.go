package grpcresilience_test

import (
	"context"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestStreamIsJudgedByWhatTheToolHasHeard(t *testing.T) {
	lost := status.Error(codes.Unavailable, "going down")
	for name, tc := range map[string]struct {
		server   handler
		receives int
		want     verdict
	}{
		"a message, and no more is asked for": {answering(2, lost), 1, own},
		"broken in the middle":                {answering(2, lost), 3, trouble},
		"nothing yet":                         {untilGone, 0, nothing},
		"its end":                             {answering(0, nil), 1, own},
		"rejected in the middle":              {answering(2, status.Error(codes.OutOfRange, "no")), 3, rejected},
	} {
		t.Run(name, func(t *testing.T) {
			_, address := listen(t, tc.server)
			conn := connect(t, address)
			assert.Equal(t, tc.want, judge(t, t.Context(), resilience.ReadOnly, func(ctx context.Context) {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				s, err := open(ctx, conn)
				assert.NoError(t, err)
				for range tc.receives {
					_ = s.RecvMsg(new(pb.HealthCheckResponse))
				}
			}))
		})
	}
}

// Each message that follows the first one may be from long ago: it doesn't outweigh what another backend says.
func TestOnlyTheFirstMessageOfAStreamIsReported(t *testing.T) {
	_, address := listen(t, answering(2, nil))
	conn := connect(t, address)
	assert.Equal(t, trouble, judge(t, t.Context(), resilience.ReadOnly, func(ctx context.Context) {
		s, err := open(ctx, conn)
		assert.NoError(t, err)
		assert.NoError(t, s.RecvMsg(new(pb.HealthCheckResponse)))
		resilience.ReportBackend(ctx, status.Error(codes.Unavailable, "another one"))
		assert.NoError(t, s.RecvMsg(new(pb.HealthCheckResponse)))
	}))
}

// A server that rejects a message may have carried out earlier ones.
func TestStreamOfAWriteIsNotRepeated(t *testing.T) {
	rejects := status.Error(codes.InvalidArgument, "the second one")
	for name, tc := range map[string]struct {
		server   handler
		receives int
	}{
		"its end isn't awaited": {untilGone, 0},
		"an answer":             {answering(2, nil), 1},
		"a rejection":           {answering(0, rejects), 1},
		"an answer, then one":   {answering(1, rejects), 2},
	} {
		t.Run(name, func(t *testing.T) {
			_, address := listen(t, tc.server)
			conn := connect(t, address)
			assert.Equal(t, 1, attemptsOfWrite(t, func(ctx context.Context) {
				s, err := open(ctx, conn)
				assert.NoError(t, err)
				for range tc.receives {
					_ = s.RecvMsg(new(pb.HealthCheckResponse))
				}
			}))
		})
	}
}

// What can't be opened has sent no message.
func TestStreamThatIsRejectedBeforeItBeginsIsNoWrite(t *testing.T) {
	_, address := listen(t, untilGone)
	reject := grpc.PerRPCCredentials(rejecting{})
	conn := connect(t, address)
	assert.Equal(t, 4, attemptsOfWrite(t, func(ctx context.Context) {
		_, err := conn.NewStream(ctx, bidirectional, "/backend/Stream", reject)
		assert.Equal(t, codes.Unauthenticated, status.Code(err))
	}))
}

// rejecting are credentials that no RPC gets.
type rejecting struct{}

func (rejecting) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return nil, status.Error(codes.Unauthenticated, "log in first")
}
func (rejecting) RequireTransportSecurity() bool { return false }

// A client-streaming RPC has one answer, and no io.EOF.
func TestClientStreaming(t *testing.T) {
	for name, tc := range map[string]struct {
		ends error
		want verdict
	}{
		"ok":          {nil, own},
		"not found":   {status.Error(codes.NotFound, "no"), rejected},
		"unavailable": {status.Error(codes.Unavailable, "no"), trouble},
	} {
		t.Run(name, func(t *testing.T) {
			_, address := listen(t, answering(1, tc.ends))
			conn := connect(t, address)
			assert.Equal(t, tc.want, judge(t, t.Context(), resilience.ReadOnly, func(ctx context.Context) {
				s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/backend/Send")
				assert.NoError(t, err)
				assert.NoError(t, s.SendMsg(new(pb.HealthCheckRequest)))
				assert.NoError(t, s.CloseSend())
				err = s.RecvMsg(new(pb.HealthCheckResponse))
				assert.Equal(t, status.Code(tc.ends), status.Code(err))
			}))
		})
	}
}

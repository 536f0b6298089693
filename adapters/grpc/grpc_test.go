package grpcresilience_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	grpcresilience "github.com/seed8d1e2389/resilience/adapters/grpc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/health/grpc_health_v1" // its messages come with gRPC
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A handler answers every RPC of a server.
type handler = grpc.StreamHandler

// listen starts a server on the loopback interface.
func listen(t *testing.T, h handler, opts ...grpc.ServerOption) (srv *grpc.Server, address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv = grpc.NewServer(append(opts, grpc.UnknownServiceHandler(h))...)
	go func() { _ = srv.Serve(listener) }()
	t.Cleanup(srv.Stop)
	return srv, listener.Addr().String()
}

func connect(t *testing.T, address string) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:"+address,
		grpc.WithChainUnaryInterceptor(grpcresilience.UnaryClientInterceptor()),
		grpc.WithChainStreamInterceptor(grpcresilience.StreamClientInterceptor()),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// answering returns a handler that receives one message, sends so many, and ends with err.
func answering(messages int, err error) handler {
	return func(_ any, s grpc.ServerStream) error {
		if err := s.RecvMsg(new(pb.HealthCheckRequest)); err != nil {
			return err
		}
		for range messages {
			if err := s.SendMsg(&pb.HealthCheckResponse{Status: pb.HealthCheckResponse_SERVING}); err != nil {
				return err
			}
		}
		return err
	}
}

// untilGone answers nothing while the client is there.
func untilGone(_ any, s grpc.ServerStream) error {
	<-s.Context().Done()
	return s.Context().Err()
}

// unary makes an RPC.
func unary(ctx context.Context, conn *grpc.ClientConn) error {
	return conn.Invoke(ctx, "/backend/Call", new(pb.HealthCheckRequest), new(pb.HealthCheckResponse))
}

var bidirectional = &grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true}

// open opens a stream and sends a message.
func open(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error) {
	s, err := conn.NewStream(ctx, bidirectional, "/backend/Stream")
	if err == nil {
		_ = s.SendMsg(new(pb.HealthCheckRequest)) // RecvMsg tells what went wrong
	}
	return s, err
}

// receive opens a stream and receives all that comes.
func receive(ctx context.Context, conn *grpc.ClientConn) error {
	s, err := open(ctx, conn)
	for err == nil {
		err = s.RecvMsg(new(pb.HealthCheckResponse))
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// errOwn is what a tool makes of any failure: it tells nothing.
var errOwn = errors.New("something went wrong")

// A verdict is what became of a call that failed.
type verdict struct {
	code       resilience.Code
	attempts   int
	counted    bool
	retryAfter time.Duration
}

var (
	trouble  = verdict{resilience.CodeRetryExhausted, 4, true, 0}
	rejected = verdict{resilience.CodeValidation, 1, false, 0}
	own      = verdict{resilience.CodeToolFailed, 1, false, 0}
	nothing  = verdict{resilience.CodeToolFailed, 1, true, 0} // ClassPermanent, which no report means
)

// judge calls a tool that does what it does, and then fails in its own words.
func judge(t *testing.T, ctx context.Context, effect resilience.Effect, does func(context.Context)) verdict {
	guard := resilience.Must(resilience.New(resilience.Config{
		Effect: effect,
		Retry: resilience.Retry{
			Backoff:    resilience.Backoff{Base: time.Nanosecond, Max: time.Nanosecond},
			MaxElapsed: -1,
		},
	}))
	r := resilience.Run(ctx, guard, "x", func(ctx context.Context) (int, error) {
		does(ctx)
		return 0, errOwn
	}, resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassPermanent}))

	require.Error(t, r.Err)
	counted := slices.ContainsFunc(guard.Health(), func(h resilience.Health) bool { return h.ConsecutiveFailures == 1 })
	return verdict{r.Err.Code, r.Attempts, counted, r.Err.RetryAfter}
}

// asking adds to a status that the client is to wait.
func asking(t *testing.T, code codes.Code, after time.Duration) error {
	s, err := status.New(code, "busy").WithDetails(
		&errdetails.RequestInfo{RequestId: "1"},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(after)},
	)
	require.NoError(t, err)
	return s.Err()
}

func TestStatusTellsWhoseFaultAFailureIs(t *testing.T) {
	failed := func(code codes.Code) error { return status.Error(code, "no") }
	once := verdict{resilience.CodeToolFailed, 1, true, 0}
	asked := verdict{resilience.CodeToolFailed, 1, true, 30 * time.Second}
	const read, write = resilience.ReadOnly, resilience.NonIdempotent

	type statusCase struct {
		effect resilience.Effect
		ends   error
		want   verdict
	}
	cases := map[string]statusCase{
		"ok":                         {read, nil, own},
		"canceled":                   {read, failed(codes.Canceled), nothing},
		"unknown":                    {read, failed(codes.Unknown), nothing},
		"any error":                  {read, errors.New("a server's own"), nothing},
		"no code of gRPC":            {read, failed(99), nothing},
		"unavailable, in own words":  {read, status.Error(codes.Unavailable, "grpc: error while marshaling"), trouble},
		"unavailable to a write":     {write, failed(codes.Unavailable), once},
		"exhausted, half a minute":   {read, asking(t, codes.ResourceExhausted, 30*time.Second), asked},
		"unavailable, half a minute": {read, asking(t, codes.Unavailable, 30*time.Second), asked},
		"to a write, half a minute":  {write, asking(t, codes.Unavailable, 30*time.Second), asked},
		"exhausted, a time gone by":  {read, asking(t, codes.ResourceExhausted, -time.Second), trouble},
		"rejected, half a minute":    {read, asking(t, codes.FailedPrecondition, 30*time.Second), rejected},
	}
	for code := codes.InvalidArgument; code <= codes.Unauthenticated; code++ {
		want := rejected
		switch code {
		case codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Unavailable,
			codes.DataLoss:
			want = trouble
		}
		cases[code.String()] = statusCase{read, failed(code), want}
	}
	for name, tc := range cases {
		messages := 0
		if tc.ends == nil {
			messages = 1 // which is what a unary RPC has
		}
		_, address := listen(t, answering(messages, tc.ends))
		conn := connect(t, address)
		for kind, does := range map[string]func(context.Context, *grpc.ClientConn) error{
			"unary": unary, "stream": receive,
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				assert.Equal(t, tc.want, judge(t, t.Context(), tc.effect, func(ctx context.Context) {
					err := does(ctx, conn)
					want, got := status.Convert(tc.ends), status.Convert(err)
					assert.Equal(t, want.Code(), got.Code(), "the tool gets what the server said")
					assert.Len(t, got.Details(), len(want.Details()))
				}))
			})
		}
	}
}

// The server is killed while it works on the RPC, or isn't there at all.
func TestServerThatDiesIsInTrouble(t *testing.T) {
	for kind, does := range map[string]func(context.Context, *grpc.ClientConn) error{
		"unary": unary, "stream": receive,
	} {
		t.Run(kind, func(t *testing.T) {
			arrived := make(chan struct{})
			srv, address := listen(t, func(_ any, s grpc.ServerStream) error {
				close(arrived)
				return untilGone(nil, s)
			})
			go func() {
				<-arrived
				srv.Stop()
			}()
			conn := connect(t, address)
			for range 2 { // the second one finds no server
				assert.Equal(t, trouble, judge(t, t.Context(), resilience.ReadOnly, func(ctx context.Context) {
					assert.Equal(t, codes.Unavailable, status.Code(does(ctx, conn)))
				}))
			}
		})
	}
}

func TestDeadlines(t *testing.T) {
	_, address := listen(t, untilGone)
	conn := connect(t, address)
	hangs := func(ctx context.Context) {
		err := unary(ctx, conn)
		assert.Contains(t, []codes.Code{codes.DeadlineExceeded, codes.Canceled}, status.Code(err))
	}

	t.Run("the tool's own", func(t *testing.T) {
		got := judge(t, t.Context(), resilience.ReadOnly, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			hangs(ctx)
		})
		assert.Equal(t, trouble, got)
	})
	t.Run("the caller's", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // it may end before the call begins
		defer cancel()
		got := judge(t, ctx, resilience.ReadOnly, hangs)
		assert.Equal(t, resilience.CodeTimeout, got.code)
		assert.False(t, got.counted)
	})
}

// attemptsOfWrite calls a tool that must not be repeated, which does what it does and then finds that nobody
// listens at another backend.
func attemptsOfWrite(t *testing.T, does func(context.Context)) int {
	guard := resilience.Must(resilience.New(resilience.Config{
		Effect: resilience.NonIdempotent,
		Retry:  resilience.Retry{Backoff: resilience.Backoff{Base: time.Nanosecond, Max: time.Nanosecond}},
	}))
	r := resilience.Run(t.Context(), guard, "x", func(ctx context.Context) (int, error) {
		does(ctx)
		return 0, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	})
	return r.Attempts
}

func TestWriteIsRepeatedOnlyIfItWasRejected(t *testing.T) {
	ends := func(code codes.Code, message string) handler { return answering(0, status.Error(code, message)) }
	small := []grpc.CallOption{grpc.MaxCallRecvMsgSize(1)}
	for name, tc := range map[string]struct {
		server   handler
		options  []grpc.CallOption
		attempts int
	}{
		"done":                           {answering(1, nil), nil, 1},
		"unknown":                        {answering(0, errors.New("committed, but not indexed")), nil, 1},
		"canceled":                       {ends(codes.Canceled, "no"), nil, 1},
		"rejected":                       {ends(codes.InvalidArgument, "no"), nil, 4},
		"an answer too large to receive": {answering(1, nil), small, 1},
		"an answer too large to send":    {ends(codes.ResourceExhausted, "message larger than max"), nil, 1},
		"an answer too large for Rust": {ends(codes.OutOfRange, "Error, encoded message length too large: "+
			"found 5242880 bytes, the limit is: 4194304 bytes"), nil, 1},
		"an answer that can't be unpacked": {ends(codes.Unimplemented, "grpc: Decompressor is not installed"), nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, address := listen(t, tc.server)
			conn := connect(t, address)
			assert.Equal(t, tc.attempts, attemptsOfWrite(t, func(ctx context.Context) {
				_ = conn.Invoke(ctx, "/backend/Call", &pb.HealthCheckRequest{Service: "a service"},
					new(pb.HealthCheckResponse), tc.options...)
			}))
		})
	}
}

// The server may have carried out an RPC whose end nobody has heard.
func TestWriteWithoutAnEndIsNotRepeated(t *testing.T) {
	for name, wait := range map[string]func(cancel func(), ended <-chan struct{}){
		"canceled by the tool": func(cancel func(), ended <-chan struct{}) {
			cancel()
			<-ended
		},
		"still under way": func(func(), <-chan struct{}) {},
	} {
		t.Run(name, func(t *testing.T) {
			arrived := make(chan struct{}, 4)
			_, address := listen(t, func(_ any, s grpc.ServerStream) error {
				arrived <- struct{}{}
				return untilGone(nil, s)
			})
			conn := connect(t, address)
			assert.Equal(t, 1, attemptsOfWrite(t, func(ctx context.Context) {
				ctx, cancel := context.WithCancel(ctx)
				t.Cleanup(cancel)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_ = unary(ctx, conn)
				}()
				<-arrived
				wait(cancel, ended)
			}))
		})
	}
}

// The last report decides, also over those of other RPCs of the attempt.
func TestLastAnswerOfTheAttemptDecides(t *testing.T) {
	_, up := listen(t, answering(1, nil))
	_, down := listen(t, answering(0, status.Error(codes.Unavailable, "no")))
	good, bad := connect(t, up), connect(t, down)
	assert.Equal(t, own, judge(t, t.Context(), resilience.ReadOnly, func(ctx context.Context) {
		_ = unary(ctx, bad)
		_ = unary(ctx, good)
	}))
	assert.Equal(t, trouble, judge(t, t.Context(), resilience.ReadOnly, func(ctx context.Context) {
		_ = unary(ctx, good)
		_ = unary(ctx, bad)
	}))
}

func TestOutsideOfAGuardedCallNothingChanges(t *testing.T) {
	_, address := listen(t, answering(1, asking(t, codes.Unavailable, time.Second)))
	conn := connect(t, address)
	assert.Equal(t, codes.Unavailable, status.Code(unary(t.Context(), conn)))
	assert.Equal(t, codes.Unavailable, status.Code(receive(t.Context(), conn)))
}

// userToken are the credentials of one user, which can't be had.
type userToken struct{ err error }

func (u userToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return nil, u.err
}
func (userToken) RequireTransportSecurity() bool { return false }

// secretToken may be sent over TLS only.
type secretToken struct{ userToken }

func (secretToken) RequireTransportSecurity() bool { return true }

// What gRPC's client can't send says nothing of the backend.
func TestRequestThatCannotBeSentIsNotReported(t *testing.T) {
	_, addr := listen(t, answering(1, nil), grpc.MaxHeaderListSize(8192))
	conn := connect(t, addr)
	require.NoError(t, unary(t.Context(), conn)) // the server has said how large its headers may be
	withToken := func(token credentials.PerRPCCredentials) func(context.Context) error {
		return func(ctx context.Context) error {
			var req, res pb.HealthCheckRequest
			return conn.Invoke(ctx, "/backend/Call", &req, &res, grpc.PerRPCCredentials(token))
		}
	}
	for name, send := range map[string]func(context.Context) error{
		"metadata": func(ctx context.Context) error {
			return unary(metadata.AppendToOutgoingContext(ctx, "token", "tökén"), conn)
		},
		"a name without letters": func(ctx context.Context) error {
			return unary(metadata.NewOutgoingContext(ctx, metadata.New(map[string]string{"": "v"})), conn)
		},
		"a message": func(ctx context.Context) error {
			return conn.Invoke(ctx, "/backend/Call", "not a message", new(pb.HealthCheckResponse))
		},
		"a compressor": func(ctx context.Context) error {
			var req, res pb.HealthCheckRequest
			return conn.Invoke(ctx, "/backend/Call", &req, &res, grpc.UseCompressor("none"))
		},
		"too much metadata": func(ctx context.Context) error {
			return unary(metadata.AppendToOutgoingContext(ctx, "baggage", "k="+strings.Repeat("x", 8180)), conn)
		},
		"an expired token":           withToken(userToken{errors.New(`oauth2: "invalid_grant"`)}),
		"a token for TLS only":       withToken(secretToken{}),
		"a token without its status": withToken(userToken{status.Error(codes.InvalidArgument, "malformed token")}),
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			got := judge(t, t.Context(), resilience.ReadOnly, func(ctx context.Context) { err = send(ctx) })
			assert.Contains(t, []codes.Code{codes.Internal, codes.Unauthenticated}, status.Code(err), "%v", err)
			assert.Equal(t, nothing, got)
		})
	}
}

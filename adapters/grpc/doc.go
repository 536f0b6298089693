// Package grpcresilience tells a guarded call what its gRPC backend has said. It consists of two client
// interceptors, which do for gRPC what [resilience.Transport] does for HTTP:
//
//	conn, err := grpc.NewClient(target,
//		grpc.WithChainUnaryInterceptor(grpcresilience.UnaryClientInterceptor()),
//		grpc.WithChainStreamInterceptor(grpcresilience.StreamClientInterceptor()),
//		grpc.WithTransportCredentials(creds),
//	)
//
// If a tool fails, in whatever words, the last report decides whose fault that was, as
// [resilience.ReportBackend] describes:
//
//	status                                             what it means
//	OK                                                 a good answer
//	DeadlineExceeded, ResourceExhausted,               the backend is in trouble: the failure is counted,
//	Internal, Unavailable, DataLoss, Aborted           and retried if the tool's Effect allows it
//	InvalidArgument, NotFound, AlreadyExists,          the backend rejects the request: the failure is
//	PermissionDenied, FailedPrecondition, OutOfRange,  neither counted nor retried
//	Unimplemented, Unauthenticated
//	Canceled, Unknown, any other                       nothing; a server makes Unknown of any error
//
// gRPC answers a message that is too large with ResourceExhausted, too, which counts: check sizes that an agent decides
// before the call. The Internal or Unauthenticated that the client makes of a
// request that it can't send (its metadata or message isn't valid or too large, or its token can't be had, or may not
// be sent) means nothing. They are known by gRPC's texts, so one that a backend passes on, from a call of its own,
// means nothing either, nor does that of a reply that it can't encode. Credentials that fail with a status of their
// own, as those of credentials/google and credentials/jwt do, look as if the backend had said it.
//
// DeadlineExceeded isn't counted if the caller has brought less time than the tool's timeout.
//
// The time to wait is the retry_delay of a google.rpc.RetryInfo in the details of a status that means
// trouble.
//
// A stream's first message is a good answer, and so is its end. If it breaks off later, that decides.
// How a stream ends is learned from RecvMsg: a tool that doesn't receive until its end hasn't heard all.
//
// An RPC may change something from its beginning on, as [resilience.BeginRequest] describes: a tool that isn't
// idempotent isn't retried afterwards, unless the server has rejected the RPC. Two rejections take nothing back:
// that of a stream, which may have carried out earlier messages, and that of a message that is too large or
// compressed in an unknown way, which may be the answer. With a retryPolicy in the service config, gRPC tells of its
// last try only: one that was rejected says nothing of those before it, which may have changed something. Leave the
// retries of such RPCs to the guard, or to the policy if they are idempotent.
//
// The interceptors leave contexts, requests, answers and errors as they are, start no goroutine, and do
// nothing outside of a guarded call. An RPC that isn't made with the context of the call, or one derived
// from it, isn't seen. List them last, next to the connection: there they see what the backend says, and
// nothing that other interceptors make of it.
package grpcresilience

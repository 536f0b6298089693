package backends

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

func TestAWS(t *testing.T) {
	list := func(address string) func(context.Context) {
		cfg := aws.Config{
			Region: "us-east-1", BaseEndpoint: &address, Credentials: aws.AnonymousCredentials{},
			Retryer: func() aws.Retryer { return aws.NopRetryer{} },
		}
		AWS(&cfg)
		return func(ctx context.Context) {
			_, _ = dynamodb.NewFromConfig(cfg).ListTables(ctx, &dynamodb.ListTablesInput{})
		}
	}
	answering := func(status int, exception string) func(context.Context) {
		body := fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"no"}`, exception)
		return list(backend(t, status, nil, body).URL)
	}
	assert.Equal(t, own, judge(t, answering(200, "")))
	assert.Equal(t, mistake, judge(t, answering(400, "ResourceNotFoundException")))
	assert.Equal(t, limited, judge(t, answering(400, "ProvisionedThroughputExceededException")))
	assert.Equal(t, counted, judge(t, answering(500, "InternalServerError")))
	assert.Equal(t, counted, judge(t, list("http://"+refusing(t))))
}

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

func TestKubernetes(t *testing.T) {
	get := func(address string) func(context.Context) {
		cfg := &rest.Config{Host: address}
		Kubernetes(cfg)
		client, err := dynamic.NewForConfig(cfg)
		require.NoError(t, err)
		pods := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("default")
		return func(ctx context.Context) { _, _ = pods.Get(ctx, "web-0", metav1.GetOptions{}) }
	}
	answering := func(status int) func(context.Context) {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Status","status":"Failure","code":%d}`, status)
		return get(backend(t, status, http.Header{"Content-Type": {"application/json"}}, body).URL)
	}
	assert.Equal(t, mistake, judge(t, answering(403)))
	assert.Equal(t, mistake, judge(t, answering(404)))
	assert.Equal(t, counted, judge(t, answering(500)))
	assert.Equal(t, counted, judge(t, answering(503)))
	assert.Equal(t, counted, judge(t, get("http://"+refusing(t))))
}

func TestRedis(t *testing.T) {
	server := miniredis.RunT(t)
	assert.NoError(t, server.Set("word", "hello"))
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	client.AddHook(RedisHook{Once: true})
	defer client.Close()

	get := func(ctx context.Context) { _ = client.Get(ctx, "word").Err() }
	assert.Equal(t, own, judge(t, get))
	assert.Equal(t, own, judge(t, func(ctx context.Context) { _ = client.Get(ctx, "nothing").Err() }))
	assert.Equal(t, mistake, judge(t, func(ctx context.Context) { _ = client.Incr(ctx, "word").Err() }))
	assert.Equal(t, mistake, judge(t, func(ctx context.Context) {
		_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error { return p.LPush(ctx, "word", 1).Err() })
	}))

	server.SetError("LOADING Redis is loading the dataset in memory")
	assert.Equal(t, counted, judge(t, get))
	server.Close()
	assert.Equal(t, counted, judge(t, get))
}

package backends

import (
	"context"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/assert"
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

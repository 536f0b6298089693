package backends

import (
	"context"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go/middleware"
	"github.com/seed8d1e2389/resilience"
)

// AWS makes all clients of cfg report. The SDK repeats requests itself, three times by default. With
// aws.NopRetryer in cfg.Retryer, only the guard does.
func AWS(cfg *aws.Config) {
	transport := awshttp.NewBuildableClient().GetTransport()
	cfg.HTTPClient = &http.Client{Transport: resilience.Transport(transport)}
	cfg.APIOptions = append(cfg.APIOptions, reportThrottling)
}

// reportThrottling corrects the transport: many services answer with 400 when they throttle.
func reportThrottling(stack *middleware.Stack) error {
	throttled := retry.ThrottleErrorCode{Codes: retry.DefaultThrottleErrorCodes}
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("resilience",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (
			middleware.InitializeOutput, middleware.Metadata, error) {
			out, metadata, err := next.HandleInitialize(ctx, in)
			if throttled.IsErrorThrottle(err) == aws.TrueTernary {
				resilience.ReportBackend(ctx, resilience.MarkNoEffect(err)) // it was refused
			}
			return out, metadata, err
		}), middleware.Before)
}

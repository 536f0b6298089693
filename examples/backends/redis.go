package backends

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
)

// RedisHook is for the AddHook method of a client. A dial is reported with the command that needs it.
type RedisHook struct{}

func (RedisHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (RedisHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		reportRedis(ctx, err)
		return err
	}
}

func (RedisHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		reportRedis(ctx, err)
		return err
	}
}

// reportRedis reads a reply, whose first word says what kind of error it is.
func reportRedis(ctx context.Context, err error) {
	var reply redis.Error

	switch {
	case err == nil, errors.Is(err, redis.Nil):
		resilience.ReportBackend(ctx, nil)
	case !errors.As(err, &reply):
		resilience.ReportBackend(ctx, err) // no answer
	default:
		kind, _, _ := strings.Cut(reply.Error(), " ")
		switch kind {
		case "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN":
			resilience.ReportBackend(ctx, err)
		default:
			resilience.ReportBackend(ctx, resilience.MarkInvalid(err))
		}
	}
}

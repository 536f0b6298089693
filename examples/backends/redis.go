package backends

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
)

// RedisHook is for the AddHook method of a client. A dial is reported with the command that needs it.
type RedisHook struct {
	// Once says that MaxRetries of the client's options is -1. A client with its defaults sends a command up to four
	// times, and returns only the last error: a refused connection doesn't mean then that Redis hasn't done it.
	Once bool
}

func (RedisHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h RedisHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.report(ctx, err)
		return err
	}
}

func (h RedisHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.report(ctx, err)
		return err
	}
}

// report reads a reply, whose first word says what kind of error it is.
func (h RedisHook) report(ctx context.Context, err error) {
	var reply redis.Error

	switch {
	case err == nil, errors.Is(err, redis.Nil):
		resilience.ReportBackend(ctx, nil)
	case !errors.As(err, &reply):
		if !h.Once && !isEnd(err) {
			err = resilience.MarkBackend(err) // an earlier try may have had an effect
		}
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

// isEnd reports whether err says that a context has ended.
func isEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

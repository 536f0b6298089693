package backends

import (
	"context"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
)

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

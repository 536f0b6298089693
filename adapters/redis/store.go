package redisfleet

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
)

var (
	//go:embed poll.lua
	pollLua string
	//go:embed failed.lua
	failedLua string
	//go:embed succeeded.lua
	succeededLua string
	//go:embed lease.lua
	leaseLua string

	pollScript      = redis.NewScript(pollLua)
	failedScript    = redis.NewScript(failedLua)
	succeededScript = redis.NewScript(succeededLua)
	leaseScript     = redis.NewScript(leaseLua)
)

// maxHanging is how many commands may hang before no further one is sent.
const maxHanging = 64

var (
	errHanging = errors.New("earlier commands still hang")
	errReply   = errors.New("the reply has an unknown form")
)

// A store holds what the members of a fleet share, in Redis.
type store struct {
	client  redis.UniversalClient
	prefix  string // of all keys
	member  string
	timeout time.Duration // of each command but leases
	hanging atomic.Int64  // commands that run
}

// A shared is a breaker of the fleet.
type shared struct {
	Failures  int   `json:"failures"`
	OpenUntil int64 `json:"openUntil"` // by Redis's clock; zero if the breaker is closed
	Reset     int64 `json:"reset"`     // when an operator has reset it; zero if none has lately
}

// An answer is what the fleet knows: the breakers that aren't closed or have failures, and the isolated ones with
// their reasons.
type answer struct {
	now      int64     // by Redis's clock, in milliseconds
	received time.Time // by the member's
	unknown  bool      // whether Redis didn't know the member
	members  int
	breakers map[string]shared
	isolated map[string]string
}

// left returns how long a breaker of the fleet stays open.
func (a answer) left(s shared) time.Duration {
	return time.Duration(s.OpenUntil-a.now)*time.Millisecond - time.Since(a.received)
}

func (s *store) breakers() string              { return s.prefix + ":breakers" }
func (s *store) members() string               { return s.prefix + ":members" }
func (s *store) isolations() string            { return s.prefix + ":isolated" }
func (s *store) leaseOf(breaker string) string { return s.prefix + ":lease:" + breaker }

// do runs a command and returns by its timeout, also if the client ignores its context, as go-redis does by default.
func (s *store) do(
	ctx context.Context, timeout time.Duration, command func(context.Context) (any, error),
) (reply any, err error) {
	return resilience.WithTimeout(ctx, "redis", timeout, func(ctx context.Context) (any, error) {
		defer s.hanging.Add(-1)
		if s.hanging.Add(1) > maxHanging {
			return nil, errHanging
		}
		return command(ctx)
	})
}

func (s *store) run(
	ctx context.Context, timeout time.Duration, script *redis.Script, keys []string, args ...any,
) (any, error) {
	return s.do(ctx, timeout, func(ctx context.Context) (any, error) {
		reply, err := script.Run(ctx, s.client, keys, args...).Result()
		if errors.Is(err, redis.Nil) {
			return nil, nil
		}
		return reply, err
	})
}

// poll says that the member is alive, and returns what the fleet knows.
func (s *store) poll(ctx context.Context) (a answer, err error) {
	keys := []string{s.breakers(), s.members(), s.isolations()}
	reply, err := s.run(ctx, s.timeout, pollScript, keys, s.member)
	if err != nil {
		return a, err
	}

	r, _ := reply.([]any)
	if len(r) != 5 {
		return a, errReply
	}
	a.received = time.Now()
	a.now, _ = r[0].(int64)
	unknown, _ := r[1].(int64)
	members, _ := r[2].(int64)
	a.unknown, a.members = unknown == 1, int(members)
	a.isolated = pairs(r[4])
	a.breakers = make(map[string]shared)
	for name, text := range pairs(r[3]) {
		if a.breakers[name], err = parse(text); err != nil {
			return a, err
		}
	}
	return a, nil
}

// These are the last arguments of failed.lua, succeeded.lua and lease.lua.
const (
	failedMore = "more"
	failedAll  = "all"
	failedTrip = "trip"

	succeededCall   = "call"
	succeededClosed = "closed"
	succeededReset  = "reset"

	leaseCall       = "call"
	leaseBackground = "background"
)

// failed adds failures, see failed.lua. It returns the time and the breaker. The zero breaker means that there is no
// room for it.
func (s *store) failed(
	ctx context.Context, breaker string, failures int, cfg resilience.BreakerConfig, how string,
) (now int64, b shared, err error) {
	keys := []string{s.breakers(), s.members()}
	reply, err := s.run(ctx, s.timeout, failedScript, keys,
		breaker, s.member, failures, cfg.Failures, cfg.Cooldown.Milliseconds(), how)
	if err != nil {
		return 0, b, err
	}

	r, _ := reply.([]any)
	if len(r) == 0 {
		return 0, b, errReply
	}
	now, _ = r[0].(int64)
	if len(r) > 1 {
		text, _ := r[1].(string)
		b, err = parse(text)
	}
	return now, b, err
}

func (s *store) succeeded(ctx context.Context, breaker, how string) error {
	keys := []string{s.breakers(), s.leaseOf(breaker)}
	_, err := s.run(ctx, s.timeout, succeededScript, keys, breaker, how)
	return err
}

func (s *store) lease(
	ctx context.Context, timeout time.Duration, breaker string, term time.Duration, how string,
) (bool, error) {
	keys := []string{s.breakers(), s.leaseOf(breaker)}
	reply, err := s.run(ctx, timeout, leaseScript, keys, breaker, s.member, max(term.Milliseconds(), 1), how)
	return reply == int64(1), err
}

func (s *store) isolate(ctx context.Context, breaker, reason string) error {
	_, err := s.do(ctx, s.timeout, func(ctx context.Context) (any, error) {
		return nil, s.client.HSet(ctx, s.isolations(), breaker, reason).Err()
	})
	return err
}

// reset ends an isolation and closes the breaker.
func (s *store) reset(ctx context.Context, breaker string) error {
	_, err := s.do(ctx, s.timeout, func(ctx context.Context) (any, error) {
		return nil, s.client.HDel(ctx, s.isolations(), breaker).Err()
	})
	if err != nil {
		return err
	}
	return s.succeeded(ctx, breaker, succeededReset)
}

func (s *store) leave(ctx context.Context) error {
	_, err := s.do(ctx, s.timeout, func(ctx context.Context) (any, error) {
		return nil, s.client.ZRem(ctx, s.members(), s.member).Err()
	})
	return err
}

// pairs returns the fields of a hash.
func pairs(reply any) map[string]string {
	r, _ := reply.([]any)
	all := make(map[string]string, len(r)/2)
	for i := 0; i+1 < len(r); i += 2 {
		name, _ := r[i].(string)
		all[name], _ = r[i+1].(string)
	}
	return all
}

func parse(text string) (b shared, err error) {
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return b, fmt.Errorf("%w: %w", errReply, err)
	}
	return b, nil
}

// isRefused reports whether Redis refuses the member, which no later try changes.
func isRefused(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	code, _, _ := strings.Cut(reply.Error(), " ")
	return code == "NOAUTH" || code == "WRONGPASS" || code == "NOPERM"
}

package redisfleet

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
)

// A store keeps what members of a fleet have to agree on. Each operation is atomic. They return what a breaker is
// afterwards, which other members receive as a message if it has changed.
type store interface {
	// saw notes what the member has seen of the fleet's memory. Each command says so: if the server has gone back to an
	// older memory since, it begins another one.
	saw(newest memory)

	// sync says no more than that the member is alive, as each command but leave does. Unless the fleet's memory is
	// what the member knows, it returns the first page of the breakers in it, and list another one. All pages of one
	// memory have each breaker that it has had all the time, perhaps more than once, also if another server takes over.
	sync(ctx context.Context, known memory) (syncReply, error)
	list(ctx context.Context, cursor string) (page, error)
	read(ctx context.Context, ids []string) ([]entry, error)

	// tell does one operation for each breaker, of which there may be maxBatch, and returns an entry for each. The
	// times of news are by the store's clock.
	tell(ctx context.Context, all ...news) ([]entry, error)
	lease(ctx context.Context, b resilience.FleetBreaker, cause resilience.Cause) (leaseReply, error)

	isolate(ctx context.Context, id, reason string) (entry, error)
	reset(ctx context.Context, id string) (entry, error)

	// compare notes the configurations of the member's breakers, and returns those of all members.
	compare(ctx context.Context, configs []string) ([]string, error)
	leave(ctx context.Context) error

	// listen delivers messages, those of the member itself too, until ctx ends. It says so whenever some may have
	// been lost.
	listen(ctx context.Context, l listener)
}

// A listener hears messages.
type listener interface {
	heard(e entry)
	subscribed()
	crashed(err error) // the client has; it isn't called again before a try that ends otherwise
}

// memory is a state of the fleet's memory. A server that has lost it, or its newest part, begins another one.
type memory struct {
	Since   string `json:"since"`
	Version int64  `json:"n"`
}

type syncReply struct {
	memory
	Of       memory `json:"of"`  // what it was before the server went back; zero if it hasn't
	Now      int64  `json:"now"` // milliseconds
	Members  int    `json:"members"`
	Complete bool   `json:"complete"` // the member knows all
	Page     page   `json:"page"`
}

// page is a part of the breakers: as many as keep a command short, however long the names are that agents choose.
type page struct {
	Since string   `json:"since"`
	IDs   []string `json:"ids"`
	Next  string   `json:"next"` // the cursor of the next page; "0" if there is none
}

// entry is a breaker of the fleet.
type entry struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	Failures int    `json:"failures"`
	Wait     int64  `json:"wait"` // milliseconds until a call may be the probe
	Cause    string `json:"cause"`
	Age      int64  `json:"age"` // milliseconds since it was changed by hand, if that is the cause
	Reason   string `json:"reason"`
	Version  int64  `json:"v"` // of the memory when it has changed last
	Since    string `json:"since"`
	By       string `json:"by"`     // the member that has changed or read it
	Asks     bool   `json:"asks"`   // nothing has changed but that By asks the backend
	Failed   int64  `json:"failed"` // milliseconds since a call or a Probe has failed last; negative if it isn't open
	Opened   int64  `json:"opened"` // milliseconds since when Probes that fail may put calls off; negative if it isn't open
	Apart    int64  `json:"apart"`  // which row the failure that was told isn't in; zero if it was counted, or never will be

	read   time.Time // when it was; zero if that is now
	came   time.Time // when the member has heard of it
	made   time.Time // what the member has applied, by its own clock
	failed time.Time // when a probe of the member's has failed since, of which the store may not have heard
}

type leaseReply struct {
	Granted bool  `json:"granted"`
	Wait    int64 `json:"wait"` // milliseconds
}

// change returns the change that e is for a member who asked at this time.
func (e entry) change(asked time.Time) resilience.FleetChange {
	c := resilience.FleetChange{
		Breaker: e.ID, Failures: e.Failures, RetryAfter: duration(e.Wait), Reason: e.Reason,
		Time: asked,
	}
	switch e.State {
	case "open":
		c.State = resilience.StateOpen
		if !asked.IsZero() && e.read.After(asked) {
			c.RetryAfter += e.read.Sub(asked) // it was counted from then
		}
	case "isolated":
		c.State = resilience.StateIsolated
	}
	switch e.Cause {
	case "probe":
		c.Cause = resilience.CauseProbe
	case "manual":
		at := e.read // rather than asked, so that what was done here before counts less however slow the server is
		if at.IsZero() {
			at = time.Now()
		}
		c.Cause, c.Time = resilience.CauseManual, at.Add(-duration(e.Age))
	}
	return c
}

const (
	// keep is for how long the server remembers what no member mentions.
	keep = 24 * time.Hour

	// absence is after how long without a word a member is forgotten.
	absence = 3 * time.Second

	// leaseTerm is how long a member may probe, unless it says again that it does.
	leaseTerm = 3 * time.Second

	// maxBreakers bounds the breakers of a namespace that aren't closed, or have failures.
	maxBreakers = 4096
)

//go:embed fleet.lua
var fleetLua string

var script = redis.NewScript(fleetLua)

// redisStore is the store of a namespace on a Redis server or cluster.
type redisStore struct {
	client redis.UniversalClient
	prefix string // of all keys; the name of the channel
	member string

	seen     atomic.Pointer[memory]
	allowed  atomic.Bool  // the server has allowed what sync doesn't do
	commands atomic.Int64 // how many there were
}

func newRedisStore(client redis.UniversalClient, namespace, member string) *redisStore {
	s := &redisStore{client: client, prefix: "resilience:{" + namespace + "}", member: member}
	s.saw(memory{})
	return s
}

func (s *redisStore) saw(newest memory) { s.seen.Store(&newest) }

// errMixedUp is the error of a reply that a hook or a proxy has mixed up with another one: it must neither crash the
// member nor pass for success.
var errMixedUp = errors.New("the reply is not to the command")

// run runs an operation of the script, and decodes its reply.
func run[T any](ctx context.Context, s *redisStore, op string, ids []string, args ...any) (reply T, err error) {
	keys := []string{s.prefix + ":members", s.prefix + ":version", s.prefix + ":index", s.prefix + ":configs"}
	keys = append(keys, fmt.Sprintf("%s:answer:%s:%d", s.prefix, s.member, s.commands.Add(1)))
	for _, id := range ids {
		keys = append(keys, s.prefix+":breaker:"+id)
	}
	seen := s.seen.Load()
	all := []any{
		op, s.member, s.prefix, milliseconds(keep), milliseconds(absence), maxBreakers, seen.Since, seen.Version,
	}
	for _, id := range ids {
		all = append(all, id)
	}

	text, err := script.Run(ctx, s.client, keys, append(all, args...)...).Text()
	if err != nil {
		return reply, err
	}
	if err := json.Unmarshal([]byte(text), &reply); err != nil {
		return reply, fmt.Errorf("%w: %w", errMixedUp, err)
	}
	return reply, nil
}

func (s *redisStore) sync(ctx context.Context, known memory) (syncReply, error) {
	if !s.allowed.Load() {
		if err := s.try(ctx); err != nil {
			return syncReply{}, err
		}
		s.allowed.Store(true)
	}
	reply, err := run[syncReply](ctx, s, "sync", nil, known.Since, known.Version)
	if err == nil && (reply.Since == "" || reply.Now <= 0 || !reply.Complete && reply.Page.Next == "") {
		err = errMixedUp
	}
	return reply, err
}

func (s *redisStore) list(ctx context.Context, cursor string) (page, error) {
	p, err := run[page](ctx, s, "list", nil, cursor)
	if err == nil && (p.Since == "" || p.Next == "") {
		err = errMixedUp
	}
	return p, err
}

// try does what sync doesn't, so that a member without the right to do so is refused before it needs that.
func (s *redisStore) try(ctx context.Context) error {
	all := s.client.Pipeline()
	all.Ping(ctx)
	all.Exists(ctx, s.prefix+":none")
	all.Del(ctx, s.prefix+":none")
	all.Publish(ctx, s.prefix, "")
	if _, err := all.Exec(ctx); err != nil {
		return err
	}

	messages := s.client.Subscribe(ctx, s.prefix)
	defer messages.Close()
	_, err := messages.ReceiveTimeout(ctx, patience)
	return err
}

func (s *redisStore) read(ctx context.Context, ids []string) ([]entry, error) {
	all, err := run[[]entry](ctx, s, "read", ids)
	if slices.ContainsFunc(all, func(e entry) bool { return !slices.Contains(ids, e.ID) }) {
		return nil, errMixedUp
	}
	return all, err
}

func (s *redisStore) lease(
	ctx context.Context, b resilience.FleetBreaker, cause resilience.Cause,
) (leaseReply, error) {
	n := news{op: "lease", breaker: b, cause: cause}
	return run[leaseReply](ctx, s, n.op, []string{b.ID}, n.args()...)
}

func (s *redisStore) isolate(ctx context.Context, id, reason string) (entry, error) {
	return s.change(ctx, "isolate", id, reason)
}

func (s *redisStore) reset(ctx context.Context, id string) (entry, error) {
	return s.change(ctx, "reset", id)
}

// change changes a breaker by hand.
func (s *redisStore) change(ctx context.Context, op, id string, args ...any) (entry, error) {
	e, err := run[entry](ctx, s, op, []string{id}, args...)
	if err == nil && e.ID != id {
		err = errMixedUp
	}
	return e, err
}

func (s *redisStore) compare(ctx context.Context, configs []string) ([]string, error) {
	args := make([]any, len(configs))
	for i, c := range configs {
		args[i] = c
	}
	return run[[]string](ctx, s, "compare", nil, args...)
}

func (s *redisStore) leave(ctx context.Context) error {
	_, err := run[struct{}](ctx, s, "leave", nil)
	return err
}

func (s *redisStore) listen(ctx context.Context, l listener) {
	for crashed := false; ctx.Err() == nil; {
		err := apart(func() { s.subscribe(ctx, l) })
		if err != nil && !crashed {
			l.crashed(err)
		}
		crashed = err != nil

		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

// subscribe delivers messages until ctx ends or the connection is lost. If the client crashes, it closes nothing: a
// Dialer that panics leaves messages locked, without a connection.
func (s *redisStore) subscribe(ctx context.Context, l listener) {
	messages := s.client.Subscribe(ctx, s.prefix)
	stop := context.AfterFunc(ctx, func() { _ = apart(func() { messages.Close() }) })
	defer stop()
	hear(ctx, messages, l)
	messages.Close()
}

// hear delivers messages until the connection is lost. PubSub.Channel would not notice if the server just falls
// silent, because it doesn't wait for the answers to its pings.
func hear(ctx context.Context, messages *redis.PubSub, l listener) {
	pinged := false
	for {
		m, err := messages.ReceiveTimeout(ctx, heartbeat)
		if isTimeout(err) && !pinged {
			pinged = true
			if messages.Ping(ctx) != nil {
				return
			}
			continue
		}
		if err != nil {
			return
		}

		pinged = false
		switch m := m.(type) {
		case *redis.Subscription:
			l.subscribed()
		case *redis.Message:
			var e entry
			if json.Unmarshal([]byte(m.Payload), &e) == nil {
				l.heard(e)
			}
		}
	}
}

// milliseconds rounds up, so that what is positive stays so, unless it is as long as it can be.
func milliseconds(d time.Duration) int64 {
	d = min(max(d, 0), math.MaxInt64-time.Millisecond)
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// sinceEpoch returns a time in milliseconds, zero if it is zero.
func sinceEpoch(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// duration returns as many milliseconds as a Duration can be long, and none if they are negative.
func duration(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), milliseconds(math.MaxInt64))) * time.Millisecond
}

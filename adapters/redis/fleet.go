package redisfleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
)

const (
	pollInterval   = 500 * time.Millisecond
	commandTimeout = time.Second
	leaseTimeout   = 100 * time.Millisecond
	refusalTime    = time.Second // for which a refused lease is not asked for again

	// joinTimeout is how long Join waits for Redis, and leaveTimeout how long Leave does.
	joinTimeout  = 2 * time.Second
	leaveTimeout = 2 * time.Second

	// These are the defaults of a guard.
	defaultFailures     = 5
	defaultCooldown     = 30 * time.Second
	defaultProbeTimeout = 2 * time.Minute
)

// Config configures a [Fleet]. Only Namespace is required.
type Config struct {
	// Namespace names the fleet: servers with the same namespace and the same Redis belong to it. It consists of 1 to
	// 64 letters, digits, ".", "_" and "-". All keys begin with "resilience:{NAMESPACE}:".
	Namespace string

	// Log receives a line when Redis can't be reached, and one when it can again. Nil means slog.Default().
	Log *slog.Logger
}

// A Fleet connects the breakers of one guard with those of other servers. Create one with [New], make the guard with
// the Config that [Fleet.Configure] returns, and call [Fleet.Join]. Its methods are safe for concurrent use.
type Fleet struct {
	store    store
	log      *slog.Logger
	interval time.Duration // between two polls
	patience time.Duration // of a call that waits for a lease

	wake chan struct{} // when there is news
	quit chan struct{} // ends the loop

	mu      sync.Mutex        // guards what follows; not held while Redis is asked
	config  *configs          // nil until Configure is called
	guard   *resilience.Guard // nil unless it is a member
	joined  bool              // it is or was one
	health  Health
	refused map[string]time.Time // when a lease was refused last
	view
}

// A configs holds what breakers are configured to do.
type configs struct {
	all      resilience.BreakerConfig
	breakers map[string]resilience.BreakerConfig // by name
}

// Health is the state of a member, as [Fleet.Health] returns it. Guard.Health returns the state of its tools.
type Health struct {
	Members int       // servers that Redis had heard of within three seconds, when it last answered
	Err     error     // why Redis can't be used, so that breakers decide alone; nil if it can
	Since   time.Time // when Err last became nil or stopped being nil
}

var (
	errNotJoined = errors.New("redisfleet: the guard isn't a member of the fleet")

	namespacePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
)

// New returns a fleet that no guard has joined yet, or an error if cfg or the client is wrong. It doesn't use the
// client, which belongs to the caller, who must close it after Leave. The client may be one of a single server, of
// Sentinel or of a cluster. TLS, passwords and timeouts are its own.
func New(client redis.UniversalClient, cfg Config) (*Fleet, error) {
	if client == nil {
		return nil, errors.New("redisfleet: New: the client is nil")
	}
	if !namespacePattern.MatchString(cfg.Namespace) {
		return nil, fmt.Errorf("redisfleet: New: Config.Namespace is %q: "+
			"it must be 1 to 64 letters, digits, '.', '_' and '-'", cfg.Namespace)
	}

	return &Fleet{
		store: store{
			client: client, prefix: "resilience:{" + cfg.Namespace + "}", member: rand.Text(), timeout: commandTimeout,
		},
		log:      cmp.Or(cfg.Log, slog.Default()),
		interval: pollInterval,
		patience: leaseTimeout,
		wake:     make(chan struct{}, 1),
		quit:     make(chan struct{}),
		health:   Health{Err: errNotJoined},
		refused:  make(map[string]time.Time),
		view:     newView(),
	}, nil
}

// Configure returns cfg with the fleet's observer and [resilience.BreakerConfig.Lease], for the one guard that joins
// the fleet. All servers of a fleet should configure a breaker alike.
func (f *Fleet) Configure(cfg resilience.Config) resilience.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config = &configs{cfg.Breaker, maps.Clone(cfg.Breakers)}
	cfg.Breaker.Lease = f.lease
	cfg.Observers = append(slices.Clone(cfg.Observers), resilience.Observer{End: f.ended, Breaker: f.changed})
	return cfg
}

// of returns the configuration of a breaker, with the defaults. A key's is that of the breaker above it.
func (c *configs) of(breaker string) resilience.BreakerConfig {
	own, ok := c.breakers[breaker]
	for name, above := range c.breakers {
		if !ok && strings.HasPrefix(breaker, name+"/") {
			own = above
		}
	}
	own.Failures = cmp.Or(own.Failures, c.all.Failures, defaultFailures)
	own.Cooldown = cmp.Or(own.Cooldown, c.all.Cooldown, defaultCooldown)
	own.ProbeTimeout = cmp.Or(own.ProbeTimeout, c.all.ProbeTimeout, defaultProbeTimeout)
	if own.Probe == nil {
		own.Probe = c.all.Probe
	}
	return own
}

// Join makes the guard, which must have the Config that Configure returned, a member of the fleet. When it returns,
// the breakers of listed tools are open or isolated if the fleet's are, so a server that is ready only then sends no
// call to a backend that others have found dead.
//
// Redis need not be there: Join waits for it for two seconds, or until ctx ends, and breakers then decide alone until
// Redis answers. It is an error if Redis refuses the member (a wrong password, a missing right), or if the fleet has
// been joined before.
func (f *Fleet) Join(ctx context.Context, guard *resilience.Guard) error {
	if guard == nil {
		return errors.New("redisfleet: Join: the guard is nil")
	}
	if err := f.begin(guard); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	err := f.poll(ctx)
	for err != nil && ctx.Err() == nil {
		if isRefused(err) {
			f.end()
			return fmt.Errorf("redisfleet: Join: %w", err)
		}
		sleep(ctx, f.interval/5)
		err = f.poll(ctx)
	}
	go f.run()
	return nil
}

// begin makes the guard a member.
func (f *Fleet) begin(guard *resilience.Guard) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.config == nil {
		return errors.New("redisfleet: Join: the guard's Config must be one that Configure has returned")
	}
	if f.joined {
		return errors.New("redisfleet: Join: the fleet has been joined before")
	}
	f.guard, f.joined = guard, true
	return nil
}

// end makes the guard a member no longer.
func (f *Fleet) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guard, f.health = nil, Health{Err: errNotJoined, Since: time.Now()}
}

// Leave ends the membership: the other servers forget this one at once, and the guard's breakers stay as they are and
// decide alone. It first sends what observers have received, so call it after Guard.Close, and close the client
// later. It waits for Redis until ctx ends, and for two seconds at most, and then returns an error. A guard that isn't
// a member is an error, too. After Leave, the fleet can't be joined again.
func (f *Fleet) Leave(ctx context.Context) error {
	f.mu.Lock()
	member := f.guard != nil
	f.mu.Unlock()
	if !member {
		return errNotJoined
	}

	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	select {
	case f.quit <- struct{}{}: // the loop has ended
	case <-ctx.Done():
		return fmt.Errorf("redisfleet: Leave: %w", ctx.Err())
	}

	err := f.tell(ctx)
	f.end()
	return errors.Join(err, f.store.leave(ctx))
}

// Health returns the state of the member.
func (f *Fleet) Health() Health {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.health
}

// note notes whether Redis has answered, and reports whether it has and hadn't before.
func (f *Fleet) note(err error) (again bool) {
	f.mu.Lock()
	before := f.health.Err
	if (before == nil) != (err == nil) || before == errNotJoined {
		f.health.Since = time.Now()
	}
	f.health.Err = err
	f.mu.Unlock()

	switch {
	case err != nil && (before == nil || before == errNotJoined):
		f.log.Warn("resilience: the fleet can't be reached: breakers decide alone", "error", err)
	case err == nil && before != nil && before != errNotJoined:
		f.log.Info("resilience: the fleet can be reached again")
	}
	return err == nil && before != nil
}

// sleep returns after d or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

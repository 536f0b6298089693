package redisfleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
)

// A Fleet is the membership of a guard in a fleet of servers. Its methods are safe for concurrent use.
type Fleet struct {
	engine *engine
	end    context.CancelFunc
	work   sync.WaitGroup
}

// Join makes the guard a member of the fleet that the namespace names. When it returns, the guard knows which breakers
// are open, so a server that is ready only then sends no call to a backend that others have found dead.
//
// Redis need not be there: Join waits until it answers, two seconds or the end of ctx at most, and the guard's
// breakers then decide alone until it does. It is an error if Redis refuses the member (a wrong password, an
// ACL rule that is missing), if cfg is wrong, or if the guard is a member of a fleet already.
//
// The client belongs to the caller, who must close it after Leave. It may be one of a single server, of Sentinel or
// of a cluster; a Ring isn't supported. TLS, passwords and timeouts are its own: no call waits for it, except that
// one that could be the probe of an open breaker waits for 100ms.
func Join(
	ctx context.Context, client redis.UniversalClient, guard *resilience.Guard, cfg Config,
) (*Fleet, error) {
	switch _, ring := client.(*redis.Ring); {
	case client == nil, isNil(client):
		return nil, errors.New("redisfleet: Join: the client is nil")
	case ring:
		return nil, errors.New("redisfleet: Join: the client is a Ring: it must be one of a server, Sentinel or a cluster")
	case guard == nil:
		return nil, errors.New("redisfleet: Join: the guard is nil")
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	id := rand.Text()
	return join(ctx, newRedisStore(client, cfg.Namespace, id), id, guard, cfg)
}

// isNil reports whether client is a nil pointer.
func isNil(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// join implements Join with any store.
func join(ctx context.Context, s store, id string, guard *resilience.Guard, cfg Config) (*Fleet, error) {
	f := &Fleet{engine: newEngine(s, id, cfg)}
	member, err := guard.JoinFleet("fleet "+cfg.Namespace, f.engine)
	if err != nil {
		return nil, fmt.Errorf("redisfleet: Join: %w", err)
	}
	f.engine.member = member
	f.engine.inherit()

	var running context.Context
	running, f.end = context.WithCancel(context.Background())
	f.work.Go(func() { s.listen(running, f.engine) })
	f.work.Go(func() { f.engine.run(running) })

	if err := f.engine.ready(ctx); err != nil {
		_ = f.Leave(ctx)
		return nil, fmt.Errorf("redisfleet: Join: %w", err)
	}
	return f, nil
}

// Leave ends the membership: the others forget this member at once, and its guard's breakers stay as they are and
// decide alone. It waits until the fleet has all results so far, unless Redis can't be reached: then those since are
// lost to the others. If ctx ends first, or five seconds pass, Leave returns an error. Call it after Guard.Close and
// before the client is closed; from then on, Isolate and Reset are errors, and Health isn't Connected.
func (f *Fleet) Leave(ctx context.Context) error {
	defer f.engine.hasLeft()
	ctx, cancel := context.WithTimeout(ctx, 10*patience) // a client without timeouts of its own may hang
	defer cancel()
	err := f.engine.member.Leave(ctx)
	f.end()

	done := make(chan struct{})
	go func() {
		f.work.Wait()
		close(done)
	}()
	select {
	case <-done: // and no word that the member is alive is under way
		return errors.Join(err, f.engine.leave(ctx))
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

// Isolate takes what a breaker protects out of service, for all members, until Reset is called: as
// [resilience.Breaker.Isolate] does for one. breaker is the name of one, of a tool or of a key ("tool/key"), that this
// member has, or of which it has heard: it is open or isolated in the fleet, or has failures. If several are named so,
// that of a listed tool comes first, then that of a listed tool's key. The error names what is allowed, ten at most
// and listed tools first, or says why the fleet could not be told; then nothing has changed, or Redis has not said
// whether it has.
func (f *Fleet) Isolate(ctx context.Context, breaker, reason string) error {
	return f.command(ctx, breaker, func(ctx context.Context, id string) (entry, error) {
		return f.engine.store.isolate(ctx, id, reason)
	})
}

// Reset closes a breaker for all members, whatever its state is at each of them, and forgets its failures. A member
// that can't reach Redis learns of it afterwards, within a minute, and unless the breaker has failed again meanwhile.
// breaker and the error are as for Isolate.
func (f *Fleet) Reset(ctx context.Context, breaker string) error {
	return f.command(ctx, breaker, f.engine.store.reset)
}

// command tells the store what to do with a breaker.
func (f *Fleet) command(
	ctx context.Context, breaker string, do func(ctx context.Context, id string) (entry, error),
) error {
	if f.Health().Error == errLeft {
		return fmt.Errorf("redisfleet: %w", errLeft)
	}
	id, err := f.find(breaker)
	if err != nil {
		return err
	}
	asked := time.Now()
	e, err := bounded(ctx, &f.engine.hanging, func(ctx context.Context) (entry, error) {
		return do(ctx, id)
	})
	if err != nil {
		f.engine.reread() // it may have been executed
		return fmt.Errorf("redisfleet: %w", err)
	}
	f.engine.told(e, asked)
	return nil
}

// maxNamed bounds the breakers that an error names: agents choose keys, and may have made thousands of them.
const maxNamed = 10

// find returns the ID of a breaker that the member has, or has heard of.
func (f *Fleet) find(breaker string) (id string, err error) {
	ids := f.engine.heardOf()
	for _, b := range f.engine.member.Breakers() {
		ids = append(ids, b.ID)
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })

	var names []string
	for _, id := range slices.Compact(ids) {
		name := nameOf(id)
		if name == breaker {
			return id, nil
		}
		names = append(names, name)
	}
	more := ""
	if n := len(names) - maxNamed; n > 0 {
		names, more = names[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	return "", fmt.Errorf("redisfleet: the breaker is %q: it must be one of %q%s", breaker, names, more)
}

// rank sorts breakers, together with their IDs: a listed tool comes first, then a key of one, and then what an agent may
// have named so.
func rank(id string) int {
	if isListed(id) {
		return 0
	}
	return 1
}

// isListed reports whether a breaker is that of a listed tool: the names of others, and keys, are what agents choose.
func isListed(id string) bool { return strings.HasPrefix(id, "listed/") && strings.Count(id, "/") == 1 }

// nameOf returns the name of the breaker with an ID, as in FleetBreaker.
func nameOf(id string) string {
	_, name, _ := strings.Cut(id, "/")
	tool, key, isKey := strings.Cut(name, "/")
	tool, _ = url.PathUnescape(tool)
	if !isKey {
		return tool
	}
	key, _ = url.PathUnescape(key)
	return tool + "/" + key
}

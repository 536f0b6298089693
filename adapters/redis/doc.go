// Package redisfleet lets the servers of a fleet share what they know of their backends, by Redis 7 or newer, or
// Valkey.
//
//	fleet, err := redisfleet.Join(ctx, client, guard, redisfleet.Config{Namespace: "shop-mcp"})
//	if err != nil {
//		return err
//	}
//	defer fleet.Leave(ctx)
//
// Without it, each of ten servers must see five failures before its breaker opens, sends a probe of its own in each
// cooldown, and knows nothing when it starts. With it, failures in a row add up over the fleet and open the breaker of
// all members, one of them sends the probe, and its success closes all of them.
//
// # What each member decides
//
// The guard's own breakers decide every call, and no call waits for Redis, but for one: a call that could be the
// probe of an open breaker waits for the lease, for 100ms and a tenth of its timeout at most, and is the probe if there is no
// answer. A breaker opens for its member alone after Failures failures of its own, as without a fleet. It opens for all
// if the fleet has as many in a row, and a [Config.Quorum] of members has seen some of them.
//
// While all backends are healthy, a member sends one command a second, to say that it is alive. Failures and probes send
// one each, and so does the first success after a failure.
//
// A probe leases the right to send it for three seconds at a time, so one that dies with its server is replaced after
// that. A member whose probe has failed leaves the next one to the others, for a quarter of the cooldown: what
// is broken may be its own network. With BreakerConfig.Probe, the fleet together asks the backend as often
// as one server would.
//
// # Without Redis
//
// If Redis is down, slow, cut off, read-only or full, or has lost its memory, breakers go on alone; nothing
// fails and nothing is slower. The log says so, observers receive a ConnectionChange, and [Fleet.Health] says why. When
// Redis is back, each member tells it what its own calls have found out meanwhile, and learns the rest.
//
// # What it shares
//
// Breakers belong together that have the same name and key, and that all members list in their Config, or that none
// does. Isolate, Trip and Reset of a Breaker concern one member; [Fleet.Isolate] and [Fleet.Reset] concern all. All members should
// configure a breaker alike: if they don't, the log says so, and Health.
//
// Times go from Redis to members as durations only, so their clocks may differ. A namespace remembers up to 4,096
// breakers that have failures; further ones aren't shared. What no member mentions is forgotten after a day.
//
// # What Redis needs
//
// All keys and the one channel of a namespace begin with resilience:{NAMESPACE}, so they are on one node of a cluster. A user for
// the ACL needs
//
//	~resilience:{NAMESPACE}:* &resilience:{NAMESPACE} +@hash +@sortedset +del +exists +pexpire +time +eval +evalsha +publish +subscribe +ping
//
// and +cluster|slots +command for a cluster.
package redisfleet

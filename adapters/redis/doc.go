// Package redisfleet lets the servers of a fleet share what they know of their backends, by Redis 7 or newer, or
// Valkey.
//
//	fleet, err := redisfleet.New(client, redisfleet.Config{Namespace: "shop-mcp"})
//	if err != nil {
//		return err
//	}
//	guard, err := resilience.New(fleet.Configure(resilience.Config{}))
//	if err != nil {
//		return err
//	}
//	if err := fleet.Join(ctx, guard); err != nil {
//		return err
//	}
//	defer fleet.Leave(context.WithoutCancel(ctx)) // by then, the server's ctx has ended
//
// Without it, each of ten servers must see five failures before its breaker opens, sends a probe of its own in each
// cooldown, and knows nothing when it starts. With it, failures in a row add up over the fleet and open the breaker of
// all members, one of them sends the probe, and its success closes all of them.
//
// # What each member decides
//
// The guard's own breakers decide every call. No call waits for Redis, with one exception: a call that could be the
// probe of an open breaker waits for a lease, for 100ms at most, and is the probe if there is no answer by then. A
// breaker opens for its member alone after Failures failures of its own, as without a fleet. It opens for all once the
// fleet has as many in a row, and two members have seen some of them, so a member whose own network is broken poisons
// no other. A fleet of one member needs no second one.
//
// Breakers belong together if they have the same name, with the key if there is one. What an operator does at one
// member by Isolate, Trip or Reset of a [resilience.Breaker] concerns all of them. A Trip of a breaker that is open
// already, and a Reset of one that is closed, concern this member alone. A Trip of a breaker with a Probe lasts a
// Cooldown at the others. Observers see what the fleet does with [resilience.CauseManual].
//
// # What Redis is asked
//
// Each member asks every 500ms, in one command, which breakers aren't closed or have failures; so it learns of a
// change within that time, and the others know that it is alive. A failure is told at once, and the answer opens the
// breaker if the fleet's is open. A success is told only if the last answer had failures. So a member sends two
// commands a second while all backends are healthy, however many calls there are.
//
// The right to send the probe is leased for the shorter of ProbeTimeout and Cooldown. A member that dies with it is
// replaced after that. With BreakerConfig.Probe, one member asks the backend in the background for as long, then
// perhaps another one.
//
// The fleet knows up to 1,000 breakers that aren't closed or have failures; further ones are each member's own. It
// forgets failures after an hour. The breaker of a key, or of a tool that the Config doesn't list, follows the fleet's
// half a second after the member's first call to it.
//
// # Without Redis
//
// If Redis is down, slow, cut off, read-only or full, breakers go on alone; nothing fails and nothing is slower. The
// log has a line, and [Fleet.Health] the reason. Once Redis answers again, each member tells it of the failures that
// its breakers have seen, and of what operators did meanwhile, and follows what the others have found out.
//
// A Redis that has lost its memory learns again in this way which breakers are open. It doesn't learn what was
// isolated: that isolation is lost, and the breakers close. So isolate by a Redis that keeps its data on disk, and set
// its maxmemory-policy to noeviction. It isn't a lock: after a failover, or if Redis is slower than 100ms, there may
// be a second probe.
//
// All keys of a namespace begin with resilience:{NAMESPACE}: and are on one node of a cluster. A user for the ACL
// needs
//
//	~resilience:{NAMESPACE}:* +evalsha +eval +time +get +set +del +pexpire +@hash +@sortedset
//
// and +cluster|slots +command for a cluster, and +select for a database other than 0.
package redisfleet

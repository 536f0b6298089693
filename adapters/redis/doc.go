// Package redisfleet lets the servers of a fleet share what they know of their backends, by Redis 7 or newer, or
// Valkey.
//
//	fleet, err := redisfleet.Join(ctx, client, guard, redisfleet.Config{Namespace: "shop-mcp"})
//	if err != nil {
//		return err
//	}
//	defer fleet.Leave(context.WithoutCancel(ctx)) // a server's has ended by then
//
// Without it, each of ten servers must see five failures before its breaker opens, sends a probe of its own in each
// cooldown, and knows nothing when it starts. With it, failures in a row add up over the fleet and open the breaker of
// all members, one of them sends the probe, and its success closes all of them.
//
// # What each member decides
//
// The guard's own breakers decide every call, and no call waits for Redis, but for one: a call that could be the
// probe of an open breaker waits for the lease, for 100ms and a tenth of its timeout at most, and is the probe if
// there is no answer. A breaker opens for its member alone after Failures failures of its own, as without a fleet.
// It opens for all if the fleet has as many in a row, and each of a [Config.Quorum] of members has seen one of them.
// Between failures within a round trip to Redis, calls of others may have succeeded: they are in a row if, by the time
// that the later one's member has heard of the earlier one and told Redis so, neither a call of its own has succeeded
// nor has another member told of one. So a backend that mostly works isn't shut while calls go on, also if one member
// has lost its connection; but it may be after a burst within a round trip that no call follows, if enough of its calls
// have failed at several members, since a member tells of a success only after failures of which it knows. A dead one
// is shut within a round trip for each failure that it takes, however many calls fail at once.
//
// While all backends are healthy, a member sends two commands a second: one says that it is alive, and one is a ping on
// the connection for messages. Failures and probes send one each, and so does the first success after a failure; of
// what a member finds out while Redis answers, one command tells a hundred. Once a minute, and after it has missed a
// message, a member reads all breakers that aren't closed or have failures, a hundred at a time.
//
// A call that is the probe leases the right to be it for three seconds at a time, so one that dies with its server is
// replaced after that. Those that tell nothing have it for a ProbeTimeout in all, at whichever members, so their clients
// don't keep the others waiting; a member that has lost it so sends one call at a time all the same, until one tells
// something, so a backend that hangs until all clients leave is asked by each member, as without a fleet.
//
// What is broken may be the network of one member: one whose probe has failed, or has told nothing, leaves the next
// one to the others, for a quarter of the cooldown, and if it is in vain again, that keeps none out that has had no
// turn since. A member that is called rarely therefore asks the backend for itself, once, however often the others
// have asked in vain, so a fleet whose members are called about once in a cooldown asks more often than that; and a
// server that crashes within each cooldown has had no turn each time it is back.
//
// With BreakerConfig.Probe, the fleet together asks the backend as often as one server would, each member in its
// turn, and keeps calls from being the probe for as long. A Probe that hangs, or tells nothing, is followed by that
// of another member, half a ProbeInterval later at most. Calls that hang as the probe keep no Probe off, nor do
// Probes keep calls off unless they fail. The time that a failed one has been asked to wait is that of all members.
// A Probe that can't see what is wrong closes the breaker once in a Cooldown, at whichever member; for up to ten
// Cooldowns, none is called then while the first call after the relapse is the probe.
//
// # Without Redis
//
// If Redis is down, slow, cut off, read-only or full, or has lost its memory, breakers go on alone; nothing fails and
// nothing is slower. The log says so, observers receive a ConnectionChange, and [Fleet.Health] says why. When Redis
// is back, each member tells it what its own calls have found out meanwhile, and learns the rest: failures that are
// told so late aren't in a row with those of a member that has succeeded since, and a breaker that has opened
// meanwhile is open for a Cooldown since then, but Probes that fail may keep its calls off for ten Cooldowns since
// Redis has heard of it. If the probe of one member has succeeded meanwhile, and a later one of another member has
// failed, it depends on who tells of it first whether the breaker is open for all or closed. They agree again about a
// second later at the latest, and two seconds after a failover, with the client's default options. Each idle
// connection of the client that was lost silently, as behind a firewall, takes 750ms more: ConnMaxIdleTime should
// close them before.
//
// A client that ignores its contexts, as with a hook that blocks, isn't called while 64 of its calls hang.
//
// If Redis has lost its memory, or has gone back to an older one as after a failover, members tell it which breakers
// are open or isolated, but for those that [Fleet.Reset] or a probe has closed within a minute, and which ones were
// closed since; also if it goes back up to 16 times in a row, or to a backup of a memory that was lost, which those
// know that were members then. A Reset is lost with a memory: a member that was away then isolates the breaker
// again, as does one that was away while Redis went back twice. An older memory passes for a newer one if all
// members that know better are away while others write as much; what they write before one of these is back passes
// for a part of it, and may be undone.
//
// Redis must not evict keys: its maxmemory-policy must be noeviction. One that is a cache forgets an isolation, of
// which nobody hears. It must answer within 75ms or so: all that a member does to connect again must be done in
// 500ms.
//
// # What it shares
//
// Breakers belong together that have the same name and key, and that all members list in their Config, or that none
// does. Isolate, Trip and Reset of a Breaker concern one member; [Fleet.Isolate] and [Fleet.Reset] concern all, and of
// what was done for one and for all, the last counts, also when a guard has left and joins again; but a member's Reset
// ends only an isolation of which it has heard. A member's Reset of a breaker that the fleet has opened stands until
// there is news of it, as when another member probes. All members should configure a breaker alike: if they don't,
// the log says so, and Health, for three minutes also of those that have left.
//
// Members tell Redis when something happened by its own clock, as they have heard that, and what they hear are
// durations, so their clocks may differ, and its own may be set back. What the calls of one member have found out keeps
// its order, however long commands take; of two members the order is known to within a round trip to Redis, and within
// that, failures pass for a row.
//
// A namespace remembers up to 4,096 breakers that have failures; of further ones only those of listed tools are shared.
// Those, and isolated ones, are remembered as long as there is a member, and for a day. Agents choose keys and the
// names of other tools: those that nobody has isolated are forgotten a day after their last change.
//
// # What Redis needs
//
// All keys and the one channel of a namespace begin with resilience:{NAMESPACE}, so they are on one node of a
// cluster. A user for the ACL needs
//
//	~resilience:{NAMESPACE}:* &resilience:{NAMESPACE} +@hash +@sortedset
//	+del +exists +pexpire +time +eval +evalsha +publish +subscribe +ping
//
// and +cluster|slots +command for a cluster, and +select for a database other than 0.
//
// # Figures
//
// "make fleet" measured this with Redis 7.0 beside the members, on two cores of a virtual machine. Each member is
// called every 20ms, and its backend fails at once. Breakers open after 5 failures, for 2s.
//
//	members  fleet  requests until  all open  probes in   all closed  commands a second,  in the
//	                all are open    after     a cooldown  after       healthy             outage
//	      1  no                  5      95ms         1.0      1.036s                 0.0     0.0
//	      1  yes                 5      93ms         1.0      1.076s                 2.0     3.8
//	      3  no                 15      94ms         3.0      1.072s                 0.0     0.0
//	      3  yes                 5      29ms         1.0      1.085s                 6.0     8.2
//	     10  no                 50     101ms        10.0      1.083s                 0.0     0.0
//	     10  yes                 5      12ms         1.0      1.056s                20.0    20.8
//	     30  no                150     101ms        30.0      1.079s                 0.0     0.0
//	     30  yes                34      24ms         1.0      1.023s                60.3    61.8
//
// The backend came back in the middle of a cooldown. Commands are those of the members, without what a script
// consists of. A call costs in a fleet what it costs alone: 2.6µs and 7 allocations under an enforced timeout,
// 1.3µs and 5 if the tool is Cooperative, and 0.7µs to 0.8µs and 2 if it is rejected.
package redisfleet

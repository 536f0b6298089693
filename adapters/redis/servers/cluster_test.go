package servers_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	redisfleet "github.com/seed8d1e2389/resilience/adapters/redis"
	"github.com/stretchr/testify/require"
)

// startCluster starts a cluster of three nodes.
func startCluster(t *testing.T) []*server {
	var nodes []*server
	create := []string{"--cluster", "create"}
	for range 3 {
		_, bus, _ := net.SplitHostPort(freeAddr(t))
		n := startServer(t, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "1000")
		nodes, create = append(nodes, n), append(create, n.addr)
	}
	out, err := exec.Command("redis-cli", append(create, "--cluster-yes")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, n := range nodes {
		eventually(t, "the cluster is there", func() bool {
			return strings.Contains(n.do("CLUSTER", "INFO"), "cluster_state:ok")
		})
	}
	return nodes
}

// toCluster returns what makes clients of a cluster, of a user who has the rights that doc.go says.
func toCluster(t *testing.T, nodes []*server) func() redis.UniversalClient {
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.addr)
		all := append([]any{"ACL", "SETUSER", "member", "on", ">secret", "+cluster|slots", "+command"}, rights(t)...)
		n.do(all...)
	}
	return func() redis.UniversalClient {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Username: "member", Password: "secret"})
		t.Cleanup(func() { client.Close() })
		return client
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t)
	b := new(backend)
	all := joinAll(t, 3, b, resilience.BreakerConfig{Cooldown: time.Hour}, toCluster(t, nodes))
	b.broken.Store(true)
	all[0].open()
	all[1].open()
	agree(t, all, resilience.StateOpen)

	// Its own client doesn't care on which node a namespace is.
	for i := range 10 {
		m := newMember(t, b, resilience.BreakerConfig{})
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].addr}})
		defer client.Close()
		fleet, err := redisfleet.Join(t.Context(), client, m.guard, redisfleet.Config{Namespace: fmt.Sprint(i)})
		require.NoError(t, err)
		require.NoError(t, fleet.Isolate(t.Context(), "search", "maintenance"))
		require.NoError(t, fleet.Leave(t.Context()))
	}

	// The node that has the keys dies, and comes back without them.
	var owner *server
	for _, n := range nodes {
		if strings.Contains(n.do("KEYS", "*"), "{test}") {
			require.Nil(t, owner, "all keys are on one node")
			owner = n
		}
	}
	owner.kill()
	noticed := connected(t, all, false)
	callsGoOn(t, all)
	owner.start()
	client := toCluster(t, nodes)() // it has forgotten its users, too
	back := connected(t, all, true)
	newcomer := newMember(t, b, resilience.BreakerConfig{Cooldown: time.Hour}).join(client)
	back += agree(t, append(all, newcomer), resilience.StateOpen)
	t.Logf("noticed after %s, agreed %s after the node's return", round(noticed), round(back))
}

// TestSentinel kills a master, so that a sentinel makes its replica the master.
func TestSentinel(t *testing.T) {
	t.Parallel()
	master := startServer(t)
	_, port, _ := net.SplitHostPort(master.addr)
	replica := startServer(t, "--replicaof", "127.0.0.1 "+port)
	eventually(t, "the replica follows", func() bool {
		return strings.Contains(replica.do("INFO", "replication"), "master_link_status:up")
	})
	sentinel := startProcess(t, "--sentinel")
	sentinel.do("SENTINEL", "MONITOR", "fleet", "127.0.0.1", port, 1)
	sentinel.do("SENTINEL", "SET", "fleet", "down-after-milliseconds", 1000, "failover-timeout", 5000)
	eventually(t, "the sentinel knows the replica", func() bool {
		return strings.Contains(sentinel.do("SENTINEL", "REPLICAS", "fleet"), "name:"+replica.addr)
	})

	b := new(backend)
	all := joinAll(t, 3, b, resilience.BreakerConfig{Cooldown: time.Hour}, func() redis.UniversalClient {
		client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "fleet", SentinelAddrs: []string{sentinel.addr}})
		t.Cleanup(func() { client.Close() })
		return client
	})
	b.broken.Store(true)
	all[0].open()
	all[1].open()
	agree(t, all, resilience.StateOpen)

	master.kill()
	connected(t, all, false)
	callsGoOn(t, all)
	eventually(t, "the replica is the master", func() bool { return strings.Contains(replica.do("ROLE"), "master") })
	back := connected(t, all, true)
	replica.subscribers(3)
	require.NoError(t, all[0].fleet.Reset(context.Background(), "search"))
	agree(t, all, resilience.StateClosed)
	t.Logf("connected %s after the failover", round(back))
}

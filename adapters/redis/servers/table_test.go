package servers_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	redisfleet "github.com/seed8d1e2389/resilience/adapters/redis"
	"github.com/stretchr/testify/require"
)

var table = flag.Bool("table", false, "print the table of make fleet, which takes about two minutes")

const (
	tableCooldown = 2 * time.Second
	tableBeat     = 20 * time.Millisecond // from one call of a member to its next
)

// A row is what happened to members in an outage of their backend.
type row struct {
	members           int
	shared            bool
	requests          int64         // that reached the dead backend before all breakers were open
	opened, closed    time.Duration // until all were, after the backend died and returned
	probes            float64       // in a cooldown
	healthy, inOutage float64       // commands a second of all members, on the server
}

// TestTable prints what servers do in an outage of their backend, with and without a fleet. Its figures depend on the
// machine, so it asserts none.
func TestTable(t *testing.T) {
	if !*table {
		t.Skip("make fleet prints it")
	}
	fmt.Printf("\nEach member is called every %s, and its backend fails at once. ", tableBeat)
	fmt.Printf("Breakers open after 5 failures, for %s.\n\n", tableCooldown)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', tabwriter.AlignRight|tabwriter.Debug)
	fmt.Fprintln(w, "members\tfleet\trequests until all open\tall open after\tprobes in a cooldown\tall closed after\t"+
		"commands/s healthy\tin the outage\t")
	for _, n := range []int{1, 3, 10, 30} {
		for _, shared := range []bool{false, true} {
			r := measure(t, n, shared)
			fmt.Fprintf(w, "%d\t%t\t%d\t%s\t%.1f\t%s\t%.1f\t%.1f\t\n", r.members, r.shared, r.requests, round(r.opened),
				r.probes, round(r.closed), r.healthy, r.inOutage)
		}
	}
	w.Flush()
	printCosts(t)
}

func measure(t *testing.T, n int, shared bool) row {
	s, b, breaker := startServer(t), new(backend), resilience.BreakerConfig{Cooldown: tableCooldown}
	var all []*member
	if shared {
		all = joinAll(t, n, b, breaker, to(t, s.addr))
		s.subscribers(n)
	} else {
		for range n {
			all = append(all, newMember(t, b, breaker))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	for i, m := range all {
		calls.Go(func() {
			time.Sleep(tableBeat * time.Duration(i) / time.Duration(n)) // so that calls are spread evenly
			for beat := time.Tick(tableBeat); ctx.Err() == nil; <-beat {
				_ = m.search()
			}
		})
	}

	r := row{members: n, shared: shared}
	r.healthy = s.rate(3 * time.Second)
	b.broken.Store(true)
	before := b.requests.Load()
	r.opened = agree(t, all, resilience.StateOpen)
	r.requests = b.requests.Load() - before

	before = b.requests.Load()
	r.inOutage = s.rate(4*tableCooldown + tableCooldown/2)
	r.probes = float64(b.requests.Load()-before) / 4
	b.broken.Store(false)
	r.closed = agree(t, all, resilience.StateClosed)
	cancel()
	calls.Wait()
	if shared {
		for _, m := range all {
			require.NoError(t, m.fleet.Leave(context.Background()))
		}
	}
	return r
}

// rate returns how many commands a second members send, without those within scripts.
func (s *server) rate(d time.Duration) float64 {
	count := func() (n int) {
		for name, calls := range s.commands() {
			if slices.Contains([]string{"evalsha", "eval", "ping", "publish", "subscribe"}, name) {
				n += calls
			}
		}
		return n
	}
	before := count()
	time.Sleep(d)
	return float64(count()-before) / d.Seconds()
}

// printCosts prints what a call costs before and after the guard joins a fleet.
func printCosts(t *testing.T) {
	s := startServer(t)
	guard, err := resilience.New(resilience.Config{Tools: map[string]resilience.Tool{
		"enforced": {}, "cooperative": {Cooperative: true}, "rejected": {},
	}})
	require.NoError(t, err)
	guard.Breaker("rejected").Trip(24 * time.Hour)
	looks := func(ctx context.Context) (int, error) { // as tools do that respect their context
		select {
		case <-ctx.Done():
		default:
		}
		return 0, nil
	}
	cost := func(tool string) testing.BenchmarkResult {
		return testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = resilience.Do(context.Background(), guard, tool, looks)
			}
		})
	}

	fmt.Println()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', tabwriter.AlignRight|tabwriter.Debug)
	fmt.Fprintln(w, "a call\twithout a fleet\tin a fleet\t")
	show := func(r testing.BenchmarkResult) string {
		return fmt.Sprintf("%d ns, %d allocs", r.NsPerOp(), r.AllocsPerOp())
	}
	tools := []string{"enforced", "cooperative", "rejected"}
	var alone []testing.BenchmarkResult
	for _, tool := range tools {
		alone = append(alone, cost(tool))
	}
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	defer client.Close()
	fleet, err := redisfleet.Join(t.Context(), client, guard, redisfleet.Config{Namespace: "test"})
	require.NoError(t, err)
	for i, tool := range tools {
		fmt.Fprintf(w, "%s\t%s\t%s\t\n", tool, show(alone[i]), show(cost(tool)))
	}
	w.Flush()
	require.NoError(t, fleet.Leave(t.Context()))
}

//go:build unix

package redisfleet

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

var table = flag.Bool("table", false, "print the table of make fleet, which takes a minute")

const (
	tableCooldown = 2 * time.Second
	tableBeat     = 20 * time.Millisecond // from one call of a member to its next
)

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
	for _, n := range []int{3, 30} {
		for _, fleet := range []bool{false, true} {
			printRow(t, w, n, fleet)
		}
	}
	w.Flush()
}

// printRow prints what happens to n members in an outage of their backend.
func printRow(t *testing.T, w *tabwriter.Writer, n int, fleet bool) {
	s, b := startServer(t), new(backend)
	defer s.kill()
	var all []*member
	for range n {
		client := redis.NewClient(&redis.Options{Addr: s.addr})
		defer client.Close()
		m := newMember(t, client, b, resilience.BreakerConfig{Cooldown: tableCooldown})
		if fleet {
			m.join()
			defer m.fleet.Leave(t.Context())
		}
		all = append(all, m)
	}

	var calls sync.WaitGroup
	var over atomic.Bool
	for i, m := range all {
		calls.Go(func() {
			time.Sleep(tableBeat * time.Duration(i) / time.Duration(n))
			for !over.Load() {
				_ = m.search()
				time.Sleep(tableBeat)
			}
		})
	}
	healthy := s.rate(3 * time.Second)
	before := b.requests.Load()
	b.broken.Store(true)
	opened := agree(t, all, resilience.StateOpen)
	requests := b.requests.Load() - before

	before = b.requests.Load()
	outage := s.rate(4*tableCooldown + tableCooldown/2)
	probes := float64(b.requests.Load()-before) / 4
	b.broken.Store(false)
	closed := agree(t, all, resilience.StateClosed)
	over.Store(true)
	calls.Wait()
	_, err := fmt.Fprintf(w, "%d\t%t\t%d\t%s\t%.1f\t%s\t%.1f\t%.1f\t\n", n, fleet, requests,
		opened.Round(time.Millisecond), probes, closed.Round(time.Millisecond), healthy, outage)
	require.NoError(t, err)
}

// rate returns how many commands a second members send, without those within scripts.
func (s *server) rate(d time.Duration) float64 {
	before := s.calls("evalsha", "eval")
	time.Sleep(d)
	return float64(s.calls("evalsha", "eval")-before) / d.Seconds()
}

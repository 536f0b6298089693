package servers_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// forget is a toxic that forgets the connections that exist when it is added, as a router does that is started again:
// what is sent on them is lost, and neither side learns of it. Later ones work.
type forget struct{}

var forgetting atomic.Bool

func (*forget) NewState() any { return forgetting.Load() }

func (*forget) Pipe(stub *toxics.ToxicStub) {
	forgotten := stub.State.(bool)
	for {
		select {
		case <-stub.Interrupt:
			return
		case c := <-stub.Input:
			switch {
			case c == nil && forgotten:
				<-stub.Interrupt // nor does the other side learn of the end
				return
			case c == nil:
				stub.Close()
				return
			case !forgotten:
				stub.Output <- c
			}
		}
	}
}

func init() { toxics.Register("forget", new(forget)) }

// TestHalfOpenConnections loses all connections of three members, of which only timeouts tell.
func TestHalfOpenConnections(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := newProxy(t, s)
	b := new(backend)
	all := joinAll(t, 3, b, resilience.BreakerConfig{Cooldown: time.Hour}, to(t, p.Listen))
	s.subscribers(3)

	forgetting.Store(true)
	for _, stream := range []string{"upstream", "downstream"} {
		json := fmt.Sprintf(`{"name": %q, "type": "forget", "stream": %q}`, stream, stream)
		_, err := p.Toxics.AddToxicJson(strings.NewReader(json))
		require.NoError(t, err)
	}
	forgetting.Store(false)

	start := time.Now()
	b.broken.Store(true)
	all[0].open()
	all[1].open()
	agreed := agree(t, all, resilience.StateOpen)
	callsGoOn(t, all)
	connected(t, all, true)
	s.subscribers(6) // three of which it doesn't know to be lost
	t.Logf("agreed after %s, subscribed after %s", round(agreed), round(time.Since(start)))

	require.NoError(t, all[2].fleet.Reset(t.Context(), "search"))
	agree(t, all, resilience.StateClosed)
}

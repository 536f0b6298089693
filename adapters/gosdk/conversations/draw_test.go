// Package conversations lets tools tell and ask clients anything while these read at any speed, and looks whether what
// package gosdk promises of that holds.
package conversations

import (
	"time"

	"pgregory.net/rapid"
)

const ms = time.Millisecond

// A conversation is a server with a tool, and clients that call it.
type conversation struct {
	timeout        time.Duration // of the tool
	attemptTimeout time.Duration // zero if there is none
	maxTimeout     time.Duration
	clients        []client
	calls          []call
}

type client struct {
	reads    []spell       // one after the other, and at once after the last one
	thinks   time.Duration // before it answers a question
	vanishes time.Duration // zero if it doesn't
}

// A spell is how a client reads for some time. What it hasn't read by the end, it reads then.
type spell struct{ lasts, takes time.Duration }

// A call is one of the tool. In each attempt, that does these steps, and others on goroutines of their own, for which
// it doesn't wait.
type call struct {
	client  int
	after   time.Duration // the last call
	leaves  time.Duration // when the caller leaves; zero if it doesn't
	fails   int           // how many attempts fail
	obeys   bool          // the tool works no longer than its context lives
	threads [][]step      // the first one is the tool's own
}

type step struct {
	kind  string
	to    int           // tell, tellApart: which client
	times int           // log, progress, tell, tellApart
	lasts time.Duration // work
}

const (
	work      = "work"
	log       = "log"       // to its client
	progress  = "progress"  // to its client
	ask       = "ask"       // its client
	ping      = "ping"      // its client
	tell      = "tell"      // any client, with the context of the call
	tellApart = "tellApart" // any client, with another context
)

// Values come in the order of their simplicity, since rapid simplifies towards the first one.
func from[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

func between(t *rapid.T, label string, least, most int) int {
	return rapid.IntRange(least, most).Draw(t, label)
}

func draw(t *rapid.T) (c conversation) {
	c.timeout = from(t, "timeout", 10*time.Second, time.Second, time.Minute)
	c.attemptTimeout = from(t, "attemptTimeout", 0, 0, c.timeout/2)
	c.maxTimeout = from(t, "maxTimeout", 0, 0, 10*c.timeout)
	for range between(t, "clients", 1, 3) {
		c.clients = append(c.clients, drawClient(t))
	}
	for range between(t, "calls", 1, 4) {
		c.calls = append(c.calls, drawCall(t, &c))
	}
	return c
}

func drawClient(t *rapid.T) (c client) {
	for range between(t, "spells", 0, 3) {
		c.reads = append(c.reads, spell{
			lasts: from(t, "lasts", 5*time.Second, 200*ms, time.Second, time.Minute),
			takes: from(t, "takes", 0, ms, 20*ms, 90*ms, 250*ms, 800*ms, 2*time.Second, time.Hour),
		})
	}
	c.thinks = from(t, "thinks", 0, 300*ms, 30*time.Second)
	c.vanishes = from(t, "vanishes", 0, 0, 0, 0, 150*ms, 4*time.Second)
	return c
}

func drawCall(t *rapid.T, of *conversation) (c call) {
	c.client = between(t, "client", 0, len(of.clients)-1)
	c.after = from(t, "after", 0, ms, 150*ms, 3*time.Second)
	c.leaves = from(t, "leaves", 0, 0, 0, 0, 500*ms, 5*time.Second)
	c.fails = from(t, "fails", 0, 0, 0, 1, 2)
	c.obeys = from(t, "obeys", false, true)
	for range from(t, "threads", 1, 1, 1, 2, 3) {
		var steps []step
		for range between(t, "steps", 0, 6) {
			steps = append(steps, drawStep(t, of))
		}
		c.threads = append(c.threads, steps)
	}
	return c
}

func drawStep(t *rapid.T, of *conversation) step {
	s := step{kind: from(t, "kind", log, progress, work, tell, tellApart, ask, ping)}
	switch s.kind {
	case tell, tellApart:
		s.to = between(t, "to", 0, len(of.clients)-1)
		fallthrough
	case log, progress:
		s.times = from(t, "times", 1, 2, 7, 50)
	case work:
		s.lasts = from(t, "work", ms, 20*ms, 200*ms, of.timeout/5, of.timeout+7*ms)
	}
	return s
}

// Fleet starts three servers that share what they know of a backend, by Redis. The backend dies and comes back, and a
// fourth server starts meanwhile. It prints what each of them knew when.
//
//	go run -C examples/fleet .
//
// It uses redis-server if that is installed, and otherwise a Redis in Go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	redisfleet "github.com/seed8d1e2389/resilience/adapters/redis"
)

const cooldown = 3 * time.Second

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer) error {
	addr, stop, err := startRedis()
	if err != nil {
		return err
	}
	defer stop()
	s := &story{out: out, start: time.Now(), redis: addr}
	defer s.leave()

	for _, name := range []string{"first", "second", "third"} {
		if err := s.join(name); err != nil {
			return err
		}
	}
	err = s.await("they know of each other", func(m *server) bool { return m.fleet.Health().Members == 3 })
	if err != nil {
		return err
	}
	s.say("first", "%v", s.servers[0].call())

	s.say("backend", "dies")
	s.dead.Store(true)
	for i := range 5 {
		s.say(s.servers[i%3].name, "%v", s.servers[i%3].call())
	}
	if err := s.await("all of them know", is(resilience.StateOpen)); err != nil {
		return err
	}
	s.say("backend", "has received %d requests since it died", s.requests.Swap(0)-1)
	if err := s.join("fourth"); err != nil {
		return err
	}
	s.say("fourth", "%v", s.servers[3].call())

	s.say("backend", "comes back")
	s.dead.Store(false)
	return s.await("one call was the probe, and all of them know", func(m *server) bool {
		_ = m.call()
		return is(resilience.StateClosed)(m)
	})
}

// A story is about servers and their backend.
type story struct {
	redis    string
	servers  []*server
	dead     atomic.Bool
	requests atomic.Int64 // that have reached the backend

	mu    sync.Mutex // guards what follows
	out   io.Writer
	start time.Time
}

// say prints what one of them has to say, and when.
func (s *story) say(who, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%5.2fs  %-8s %s\n", time.Since(s.start).Seconds(), who, fmt.Sprintf(format, args...))
}

// await waits until something is so at all servers.
func (s *story) await(what string, is func(*server) bool) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		all := true
		for _, m := range s.servers {
			all = is(m) && all
		}
		switch {
		case all:
			s.say("fleet", "%s", what)
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("not within a minute: %s", what)
		}
	}
}

func is(state resilience.State) func(*server) bool {
	return func(m *server) bool { return m.guard.Breaker("search").State() == state }
}

// A server has a tool, "search", that asks the backend.
type server struct {
	story  *story
	name   string
	guard  *resilience.Guard
	client *redis.Client
	fleet  *redisfleet.Fleet
}

// join starts a server, which is ready when it has joined the fleet.
func (s *story) join(name string) (err error) {
	m := &server{story: s, name: name, client: redis.NewClient(&redis.Options{Addr: s.redis})}
	m.fleet, err = redisfleet.New(m.client, redisfleet.Config{Namespace: "example"})
	if err != nil {
		return err
	}
	m.guard = resilience.Must(resilience.New(m.fleet.Configure(resilience.Config{
		Breaker: resilience.BreakerConfig{Cooldown: cooldown},
		Retry:   resilience.Retry{MaxRetries: -1},
		Tools:   map[string]resilience.Tool{"search": {Effect: resilience.ReadOnly}},
		Observers: []resilience.Observer{{Breaker: func(e resilience.BreakerChange) {
			s.say(name, "its breaker is %s (cause: %s)", e.To, e.Cause)
		}}},
	})))
	if err := m.fleet.Join(context.Background(), m.guard); err != nil {
		return err
	}
	s.servers = append(s.servers, m)
	s.say(name, "has joined, and its breaker is %s", m.guard.Breaker("search").State())
	return nil
}

// leave ends all servers.
func (s *story) leave() {
	for _, m := range s.servers {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, _ = m.guard.Close(ctx)
		_ = m.fleet.Leave(ctx)
		cancel()
		m.client.Close()
	}
}

// call returns what an agent reads.
func (m *server) call() string {
	text, err := resilience.Do(context.Background(), m.guard, "search", func(context.Context) (string, error) {
		m.story.requests.Add(1)
		if m.story.dead.Load() {
			return "", errors.New("503 Service Unavailable")
		}
		return "found", nil
	})
	if err != nil {
		return err.Error()
	}
	return text
}

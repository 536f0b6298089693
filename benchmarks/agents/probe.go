package agents

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/seed8d1e2389/resilience"
)

const (
	probeInterval = 5 * time.Second // the default of ProbeInterval
	probePatience = 2 * time.Second // how long a probe waits for an answer
)

// A metronome is a resilience.ProbeURL that repeats. A guard draws the time between two Probes from the upper half of
// ProbeInterval, and agents read the time until the next one. Here that time is always the whole probeInterval, the
// longest that could be drawn: the backend is asked in advance, and Probe, which takes no time, returns what it has
// said and sets the time of the next one by a RetryAfter.
type metronome struct {
	ask func(context.Context) error

	mu     sync.Mutex // guards what follows
	due    time.Time  // when Probe is called next
	answer error      // that it will return
}

// steadyProbe returns a breaker's config with a metronome.
func steadyProbe(host string, client *http.Client) resilience.BreakerConfig {
	m := &metronome{ask: resilience.ProbeURL("http://"+host+"/healthz", client)}
	return resilience.BreakerConfig{Probe: m.probe, ProbeInterval: 1} // nothing is left to draw
}

var errNotAsked = errors.New("the backend hasn't been asked yet")

func (m *metronome) probe(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := errNotAsked // the first time, as soon as the breaker has opened
	if time.Now().Equal(m.due) {
		err = m.answer
	}
	if err == nil {
		return nil
	}

	wait := probeInterval
	var asks interface{ RetryAfter() time.Duration }
	if errors.As(err, &asks) {
		wait = max(wait, min(asks.RetryAfter(), cooldown))
	}
	m.due, m.answer = time.Now().Add(wait), errNotAsked
	time.AfterFunc(wait-probePatience-1, m.listen)
	return &postponed{err, wait}
}

// listen asks the backend, just in time for the next Probe.
func (m *metronome) listen() {
	ctx, cancel := context.WithTimeout(context.Background(), probePatience)
	defer cancel()
	err := m.ask(ctx)

	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = err
}

// postponed is the failure of a Probe, and says when to make the next one.
type postponed struct {
	error
	after time.Duration
}

func (e *postponed) Unwrap() error             { return e.error }
func (e *postponed) RetryAfter() time.Duration { return e.after }

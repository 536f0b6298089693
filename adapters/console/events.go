package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// interval is the time between two looks at the guard, whatever happens meanwhile.
	interval = time.Second

	// heartbeat is the longest time between two events.
	heartbeat = 5 * time.Second

	// writeTimeout is how long a reader may take for an event.
	writeTimeout = 10 * time.Second
)

// events streams what changes until the reader leaves, is too slow, or Close is called. It runs on the goroutine
// of the request and keeps no events for it: a reader that is slow misses what lies between.
func (c *Console) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep events back
	if r.Method == http.MethodHead {
		return
	}

	release := c.enter(w)
	if release == nil {
		return
	}
	defer release()
	out := stream{w, http.NewResponseController(w)}
	if out.hurry() != nil {
		fail(w, http.StatusInternalServerError,
			"events need a ResponseWriter with deadlines: one that wraps another needs the method Unwrap")
		return
	}

	current := c.snapshot()
	if out.send("snapshot", current.document) != nil {
		return
	}
	sent := time.Now()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-c.closed:
			return
		case <-ticker.C:
		}

		next := c.snapshot()
		u := next.since(current)
		current = next
		if u.isEmpty() && time.Since(sent) < heartbeat-interval/2 { // sending takes some time, too
			continue
		}
		if out.send("update", u) != nil {
			return
		}
		sent = time.Now()
	}
}

// enter counts a reader until release is called. If there is no room for it, it answers that, and release is nil.
func (c *Console) enter(w http.ResponseWriter) (release func()) {
	select {
	case <-c.closed:
		fail(w, http.StatusServiceUnavailable, "the console is closed")
		return nil
	default:
	}

	select {
	case c.streams <- struct{}{}:
		return func() { <-c.streams }
	default:
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, fmt.Sprintf("there are %d readers already", cap(c.streams)))
		return nil
	}
}

// A stream writes events. A reader that doesn't read ends it by the deadline of a write.
type stream struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// hurry sets the deadline of the next write, instead of the server's WriteTimeout, which is for ordinary requests.
func (s stream) hurry() error { return s.rc.SetWriteDeadline(time.Now().Add(writeTimeout)) }

func (s stream) send(event string, data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if err := s.hurry(); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", event, b); err != nil { // JSON has no line breaks
		return err
	}
	return s.rc.Flush()
}

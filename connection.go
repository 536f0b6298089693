package resilience

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// ConnectorConfig configures a [Connector]. The zero value is all defaults.
type ConnectorConfig[C comparable] struct {
	// Name is for errors, events and logs. "": "connection".
	Name string

	// Backoff gives the delays between dials. Zero fields: 500ms to 60s with full jitter.
	// Negative durations are not allowed.
	Backoff Backoff

	// MaxAttempts is how many dials in a row may fail before the connection is given up
	// until [Connector.Reconnect]. 0: any number. Negative: not allowed.
	MaxAttempts int

	// DialTimeout limits one dial. One that is still under way then has failed; a
	// connection that it brings later is closed. One that doesn't heed its context may thus
	// still run when the next begins; with four of them no further one is made. 0: 30s.
	// Negative: not allowed.
	DialTimeout time.Duration

	// Stable is how long a connection must last for the backoff to begin anew when it is
	// lost, so that one that drops as soon as it is up is not dialled in a loop. 0: the
	// longest delay of Backoff. Negative: not allowed.
	Stable time.Duration

	// Close closes a connection that is of no more use: exactly once for each that dial
	// returned, on a goroutine of its own or on that of Connector.Close. A panic in it is
	// recovered. nil: its Close method, if it is an io.Closer.
	Close func(C) error

	// Watch returns when the connection is broken, and says why (nil: it has ended): a loop
	// that reads, or a method that waits for the end. It is called once for each connection
	// that comes up, on a goroutine of its own, and must return soon after the connection is
	// closed. If it panics, the connection is lost. nil: only Lost says that one is.
	Watch func(C) error

	// OnChange is told of each change, in order and one at a time, on a goroutine of its
	// own: it may use the connector. A panic in it is recovered. One that blocks isn't told
	// of changes beyond the next 1,024. nil: nobody is told.
	OnChange func(ConnectionChange)

	// Observers are told of each change too, see [Observer.Connection].
	Observers []Observer

	// Log is where the connector says that an observer panics or is too slow. nil:
	// slog.Default().
	Log *slog.Logger
}

func (c ConnectorConfig[C]) check() error {
	errs := append(notNegative("DialTimeout", c.DialTimeout, "Stable", c.Stable), c.Backoff.check()...)
	if c.MaxAttempts < 0 {
		errs = append(errs, fmt.Errorf("MaxAttempts is %d: it must not be negative (0 is any number)", c.MaxAttempts))
	}
	return errors.Join(errs...)
}

// ConnectionState is the state of a [Connector].
type ConnectionState uint8

const (
	ConnectionDown      ConnectionState = iota // lost, or not there yet: it is being dialled, or will be
	ConnectionUp                               // there
	ConnectionExhausted                        // given up until Reconnect
	ConnectionClosed                           // for good, by Connector.Close
)

// String returns "down", "up", "exhausted" or "closed".
func (s ConnectionState) String() string {
	switch s {
	case ConnectionDown:
		return "down"
	case ConnectionUp:
		return "up"
	case ConnectionExhausted:
		return "exhausted"
	case ConnectionClosed:
		return "closed"
	}
	return fmt.Sprintf("ConnectionState(%d)", uint8(s))
}

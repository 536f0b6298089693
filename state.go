package resilience

import "fmt"

// State is the state of a [Breaker].
type State uint8

const (
	StateClosed   State = iota // calls pass
	StateHalfOpen              // one probe passes, all other calls are rejected
	StateOpen                  // all calls are rejected
	StateIsolated              // all calls are rejected until Reset is called
)

// String returns "closed", "half-open", "open" or "isolated".
func (s State) String() string {
	switch s {
	case StateClosed:
		return "closed"
	case StateHalfOpen:
		return "half-open"
	case StateOpen:
		return "open"
	case StateIsolated:
		return "isolated"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText returns the text of String. It never fails.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Cause is why the state of a [Breaker] has changed.
type Cause uint8

const (
	CauseCalls    Cause = iota // the results of calls: too many failures, or that of the probe
	CauseCooldown              // the cooldown has passed, so that a call may be the probe
	CauseProbe                 // BreakerConfig.Probe has succeeded, or failed while no call was the probe
	CauseManual                // Isolate, Trip or Reset
	CauseFleet                 // what calls and Probes of other members of the Fleet have found out
)

// String returns "calls", "cooldown", "probe", "manual" or "fleet".
func (c Cause) String() string {
	switch c {
	case CauseCalls:
		return "calls"
	case CauseCooldown:
		return "cooldown"
	case CauseProbe:
		return "probe"
	case CauseManual:
		return "manual"
	case CauseFleet:
		return "fleet"
	}
	return fmt.Sprintf("Cause(%d)", uint8(c))
}

// MarshalText returns the text of String. It never fails.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

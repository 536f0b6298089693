package resilience

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

const defaultMaxAbandoned = 64

// Config configures a [Guard]. The zero value is all defaults. New copies what it needs, so
// that later changes of a Config have no effect.
type Config struct {
	// Timeouts gives tiers their timeouts. It may replace those of Quick (60s) and Heavy (120s)
	// and add other tiers. Each must be positive.
	Timeouts Timeouts

	// Tools describes tools by their names, which must be neither empty nor "(others)". Other tools
	// may be called too.
	Tools map[string]Tool

	// Effect is the effect of tools that aren't listed in Tools. The zero value is
	// EffectUnknown.
	Effect Effect

	// Breaker is the template for all breakers. Its Classify receives the error that the tool
	// returned, or the TIMEOUT of a call that exceeded the tool's own timeout.
	Breaker BreakerConfig

	// Breakers replaces the template for breakers, by their names: those that tools have in Breaker, and
	// the names of tools that have none. What it leaves zero is as in the template. It doesn't apply to
	// tools that aren't listed in Tools.
	Breakers map[string]BreakerConfig

	// Retry applies to every tool that has none of its own.
	Retry Retry

	// AttemptTimeout is the timeout of each attempt within the timeout of the call, so that an
	// attempt that hangs leaves time for another one. Zero means none. It must not be negative.
	AttemptTimeout time.Duration

	// MaxAbandoned is how many abandoned attempts of a tool may still run before new calls are
	// OVERLOADED. Calls that are under way at that moment may exceed it. An attempt that was
	// abandoned early, because its caller left or allowed less time than the tool's own timeout,
	// counts only for other calls that allow less time, until the tool's own timeout or its
	// MaxTimeout has passed: no caller can shut the tool for callers that are patient. Zero means
	// 64. It must not be negative.
	MaxAbandoned int

	// Suggestions replaces what an agent reads about what to do next, by code. If the tool may have
	// taken effect, and isn't known to be ReadOnly or Idempotent, the suggestion to check that is still
	// added. Each key must be one of the Codes; that of TOOL_FAILED is also for the codes of tools' own.
	Suggestions map[Code]string

	// Observers receive the events of every call. They are isolated: a panic or a slow callback
	// affects neither calls nor other observers, but for a call's wait for [Observer.Start].
	Observers []Observer

	// Log receives warnings: about observers that panic or fall behind, Probes that crash, tools that the server
	// doesn't have, and a fleet that can't be reached. Those about observers are rate-limited. Nil means slog.Default().
	Log *slog.Logger

	// Debug adds details to every error: redacted arguments, timeout, attempt, elapsed time
	// and cause. The agent reads them. The cause is scrubbed, see [Scrub], and the arguments are redacted by their
	// names, see [Redact]: other secrets in them aren't recognized.
	Debug bool
}

// Tool describes one tool. The zero value is all defaults.
type Tool struct {
	// Tier selects the timeout: Quick, Heavy or a key of Config.Timeouts. The empty tier means
	// the DefaultTier of the tool's name.
	Tier Tier

	// Timeout is the tool's own timeout, which replaces that of its tier. Zero means the tier's
	// timeout. It must not be negative.
	Timeout time.Duration

	// MaxTimeout bounds a call whose timeout [ReportProgress] restarts or the option [Timeout]
	// extends. Zero means the tool's timeout, so that neither has an effect. It must not be
	// below the tool's timeout.
	MaxTimeout time.Duration

	// AttemptTimeout is the timeout of each attempt, which replaces Config.AttemptTimeout. Zero means
	// Config.AttemptTimeout, and negative none.
	AttemptTimeout time.Duration

	// MaxInFlight is how many calls of the tool may run at once. A further one is OVERLOADED at once, which
	// no breaker counts: servers over stdio have few workers, and one slow tool must not take them all. A call that
	// is paused counts too, so a tool that asks people needs one for each who may not answer; a call of the tool within
	// one of its own doesn't. Zero means any number. It must not be negative.
	MaxInFlight int

	// Effect is what running the tool twice may do. Config.Effect doesn't apply to a tool that
	// is listed.
	Effect Effect

	// Breaker names the tool's breaker. Tools that share a backend name the same one. Empty
	// means the tool's own name. For a tool with several backends, see [BreakerKey].
	Breaker string

	// Cooperative promises that the tool returns soon after its context has ended. The tool
	// then runs on the caller's goroutine, which is faster, and nothing helps if it breaks the
	// promise or calls runtime.Goexit, which ends that goroutine. A mark that it returns at its timeout, such as
	// MarkInvalid, stands; the error of another tool is then the cause of TIMEOUT, unless it is an *Error.
	Cooperative bool

	// Retry replaces Config.Retry as a whole. Nil means Config.Retry.
	Retry *Retry
}

// timeouts returns the timeout of every tier that there is.
func (c Config) timeouts() Timeouts {
	t := Timeouts{Quick: quickTimeout, Heavy: heavyTimeout}
	maps.Copy(t, c.Timeouts)
	return t
}

// timeout returns the timeout of a tool by its own field, its tier or its name.
func (t Tool) timeout(name string, timeouts Timeouts) time.Duration {
	switch {
	case t.Timeout != 0:
		return t.Timeout
	case t.Tier != "":
		return timeouts[t.Tier]
	default:
		return timeouts[DefaultTier(name)]
	}
}

// A fieldErrors collects what is wrong with the fields of a configuration.
type fieldErrors []error

func (e *fieldErrors) add(field, format string, args ...any) {
	*e = append(*e, fmt.Errorf("%s %s", field, fmt.Sprintf(format, args...)))
}

// notNegative checks a duration that has a default.
func (e *fieldErrors) notNegative(field string, d time.Duration) {
	if d < 0 {
		e.add(field, "is %s: it must not be negative (0 is the default)", d)
	}
}

// within adds the errors of a field that is a struct.
func (e *fieldErrors) within(field string, inner []error) {
	for _, err := range inner {
		*e = append(*e, fmt.Errorf("%s.%w", field, err))
	}
}

// check returns one error that names every bad field, nil if there is none.
func (c Config) check() error {
	var errs fieldErrors
	for _, tier := range slices.Sorted(maps.Keys(c.Timeouts)) {
		if tier == "" {
			errs.add(`Timeouts[""]`, "has no name")
		}
		if d := c.Timeouts[tier]; d <= 0 {
			errs.add(fmt.Sprintf("Timeouts[%q]", tier), "is %s: it must be positive", d)
		}
	}

	timeouts := c.timeouts()
	for _, name := range slices.Sorted(maps.Keys(c.Tools)) {
		c.Tools[name].check(&errs, name, timeouts)
	}

	checkEffect(&errs, "Effect", c.Effect)
	errs.within("Breaker", c.Breaker.check())
	c.checkBreakers(&errs)
	errs.within("Retry", c.Retry.check())
	if c.AttemptTimeout < 0 {
		errs.add("AttemptTimeout", "is %s: it must not be negative (0 is none)", c.AttemptTimeout)
	}
	if c.MaxAbandoned < 0 {
		errs.add("MaxAbandoned", "is %d: it must not be negative (0 is %d)", c.MaxAbandoned, defaultMaxAbandoned)
	}
	for _, code := range slices.Sorted(maps.Keys(c.Suggestions)) {
		if !code.valid() {
			errs.add(fmt.Sprintf("Suggestions[%q]", string(code)), "is of no code: it must be one of %q",
				slices.Sorted(maps.Keys(suggestions)))
		}
	}

	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("resilience: wrong Config: %w", errors.Join(errs...))
}

func (c Config) checkBreakers(errs *fieldErrors) {
	named := make(map[string]bool)
	for name, t := range c.Tools {
		named[cmp.Or(t.Breaker, name)] = true
	}

	for _, name := range slices.Sorted(maps.Keys(c.Breakers)) {
		field := fmt.Sprintf("Breakers[%q]", name)
		if !named[name] {
			errs.add(field, "is of no tool: it must be one of %q", slices.Sorted(maps.Keys(named)))
		}
		errs.within(field, c.Breakers[name].check())
	}
}

func (t Tool) check(errs *fieldErrors, name string, timeouts Timeouts) {
	field := fmt.Sprintf("Tools[%q]", name)
	if name == "" {
		errs.add(field, "has no name")
	}
	if name == othersName {
		errs.add(field, "has the name of all tools that have no state of their own")
	}
	if _, ok := timeouts[t.Tier]; t.Tier != "" && !ok {
		errs.add(field+".Tier", "is %q: it must be one of %q, or be given a timeout in Timeouts",
			t.Tier, slices.Sorted(maps.Keys(timeouts)))
	}

	if t.Timeout < 0 {
		errs.add(field+".Timeout", "is %s: it must not be negative (0 is the tier's)", t.Timeout)
	}
	if t.MaxTimeout < 0 {
		errs.add(field+".MaxTimeout", "is %s: it must not be negative (0 is the tool's timeout)", t.MaxTimeout)
	} else if timeout := t.timeout(name, timeouts); t.MaxTimeout > 0 && t.MaxTimeout < timeout {
		errs.add(field+".MaxTimeout", "is %s: it must not be under the tool's timeout of %s", t.MaxTimeout, timeout)
	}

	if t.Breaker == othersName {
		errs.add(field+".Breaker", "is the name of all tools that have no state of their own")
	}

	if t.MaxInFlight < 0 {
		errs.add(field+".MaxInFlight", "is %d: it must not be negative (0 is any number)", t.MaxInFlight)
	}
	checkEffect(errs, field+".Effect", t.Effect)
	if t.Retry != nil {
		errs.within(field+".Retry", t.Retry.check())
	}
}

func checkEffect(errs *fieldErrors, field string, e Effect) {
	if e > NonIdempotent {
		errs.add(field, "is %d: it must be EffectUnknown, ReadOnly, Idempotent or NonIdempotent", e)
	}
}

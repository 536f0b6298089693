package resilience

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"
)

// Effect says what running a tool twice may do, after the annotations of MCP. It
// decides what is retried after a failure that leaves open whether the tool took
// effect.
type Effect uint8

const (
	EffectUnknown Effect = iota // retried only after a failure that certainly had no effect: see MarkTransient
	ReadOnly                    // changes nothing (readOnlyHint): retried
	Idempotent                  // may be repeated without harm (idempotentHint): retried
	NonIdempotent               // must not be repeated: as EffectUnknown, and the agent is told to check first
)

// String returns the effect's name.
func (e Effect) String() string {
	switch e {
	case EffectUnknown:
		return "unknown"
	case ReadOnly:
		return "read-only"
	case Idempotent:
		return "idempotent"
	case NonIdempotent:
		return "non-idempotent"
	}
	return fmt.Sprintf("Effect(%d)", uint8(e))
}

const defaultMaxAbandoned = 64

// Config configures a [Guard]. The zero value works. New copies what it needs:
// changing a Config later changes nothing.
type Config struct {
	// Timeouts gives tiers their limits: it may replace those of Quick (60s) and
	// Heavy (120s) and add others. Each must be positive.
	Timeouts map[Tier]time.Duration

	// Tools says what is known of each tool, by its name, which must not be empty.
	// Others may be called too.
	Tools map[string]Tool

	// Effect is that of tools that aren't listed in Tools. Zero: EffectUnknown.
	Effect Effect

	// Breaker is the template for all breakers. Its Classify sees what the tool
	// returned, or the TIMEOUT of a call that outran the tool's own limit.
	Breaker BreakerConfig

	// Retry is for every tool that has none of its own.
	Retry Retry

	// AttemptTimeout limits each attempt within the limit of the call, so that one
	// that hangs leaves time for another. 0: no such limit. Negative: not allowed.
	AttemptTimeout time.Duration

	// MaxAbandoned is how many calls of a tool that were given up on may still run
	// before further ones are OVERLOADED. Calls that are under way when that number
	// is reached may yet come on top of it. 0: 64. Negative: not allowed.
	MaxAbandoned int

	// Suggestions replaces what an agent is told to do next, by code. After an
	// outcome that is unknown, the advice to check it follows in any case. A key that is
	// none of the Codes is not allowed.
	Suggestions map[Code]string

	// Observers are told of every call. Each is by itself: what one does harms neither a
	// call nor another observer.
	Observers []Observer

	// Log is where the guard says, as a warning and not for each call, that an observer
	// panics or is too slow. nil: slog.Default().
	Log *slog.Logger

	// Debug puts details into every error: redacted arguments, limit, attempt,
	// elapsed time and cause. They go to the agent.
	Debug bool
}

// Tool says what is known of one tool. The zero value is all defaults.
type Tool struct {
	// Tier gives the limit: Quick, Heavy or a key of Config.Timeouts. "": DefaultTier of
	// the tool's name.
	Tier Tier

	// Timeout is a limit of the tool's own, instead of its tier's. 0: the tier's.
	// Negative: not allowed.
	Timeout time.Duration

	// MaxTimeout bounds a call whose limit is restarted by [Progress] or lengthened by
	// [Limit]. 0: the tool's timeout, which neither then lengthens. It must not be under
	// that.
	MaxTimeout time.Duration

	// Effect is what running the tool twice may do. Config.Effect doesn't apply to
	// a tool that is listed.
	Effect Effect

	// Breaker names the breaker; tools of one backend name the same. "": the
	// tool's own name.
	Breaker string

	// Cooperative promises that the tool returns soon after its context is done. It
	// then runs on the caller's goroutine, which is faster, and nothing can be done
	// if it breaks the promise; nor if it calls runtime.Goexit, which ends that
	// goroutine.
	Cooperative bool

	// Retry replaces Config.Retry as a whole. nil: Config.Retry.
	Retry *Retry
}

// ConfigFromEnv reads PREFIX_TIMEOUT_QUICK and PREFIX_TIMEOUT_HEAVY (a bare integer
// is milliseconds, anything else a duration such as "90s"; positive) and
// PREFIX_DEBUG ("true" or "false"). A variable that is empty counts as unset, and
// leaves the Config's field zero. An empty prefix leaves out the underscore too.
//
// Anything else is an error, which names each wrong variable, its value and what is
// allowed; the Config is then zero.
func ConfigFromEnv(prefix string) (Config, error) {
	if prefix != "" {
		prefix += "_"
	}
	var cfg Config
	var errs []error
	for _, tier := range []struct {
		variable string
		tier     Tier
	}{{prefix + "TIMEOUT_QUICK", Quick}, {prefix + "TIMEOUT_HEAVY", Heavy}} {
		value := os.Getenv(tier.variable)
		if value == "" {
			continue
		}
		d, err := parseTimeout(value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is %q: %w", tier.variable, value, err))
			continue
		}
		if cfg.Timeouts == nil {
			cfg.Timeouts = make(map[Tier]time.Duration)
		}
		cfg.Timeouts[tier.tier] = d
	}
	switch value := os.Getenv(prefix + "DEBUG"); value {
	case "", "false":
	case "true":
		cfg.Debug = true
	default:
		errs = append(errs, fmt.Errorf(`%sDEBUG is %q: it must be "true" or "false"`, prefix, value))
	}
	if len(errs) > 0 {
		return Config{}, fmt.Errorf("resilience: wrong environment: %w", errors.Join(errs...))
	}
	return cfg, nil
}

var errTimeoutFormat = errors.New(`it must be a positive number of milliseconds ("90000") or a positive duration ("90s")`)

func parseTimeout(value string) (time.Duration, error) {
	if ms, err := strconv.ParseInt(value, 10, 64); err == nil {
		d := time.Duration(ms) * time.Millisecond
		if ms <= 0 || d/time.Millisecond != time.Duration(ms) {
			return 0, errTimeoutFormat
		}
		return d, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return 0, errTimeoutFormat
	}
	return d, nil
}

// notNegative checks two fields that are durations with a default.
func notNegative(a string, da time.Duration, b string, db time.Duration) (errs []error) {
	if da < 0 {
		errs = append(errs, fmt.Errorf("%s is %s: it must not be negative (0 is the default)", a, da))
	}
	if db < 0 {
		errs = append(errs, fmt.Errorf("%s is %s: it must not be negative (0 is the default)", b, db))
	}
	return errs
}

// timeouts returns the limit of every tier that there is.
func (c Config) timeouts() map[Tier]time.Duration {
	t := map[Tier]time.Duration{Quick: quickTimeout, Heavy: heavyTimeout}
	maps.Copy(t, c.Timeouts)
	return t
}

// timeout is the limit of a tool by its entry, its tier or its name.
func (t Tool) timeout(name string, timeouts map[Tier]time.Duration) time.Duration {
	switch {
	case t.Timeout != 0:
		return t.Timeout
	case t.Tier != "":
		return timeouts[t.Tier]
	default:
		return timeouts[DefaultTier(name)]
	}
}

// check returns one error that names every bad field, nil if there is none.
func (c Config) check() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s %s", field, fmt.Sprintf(format, args...)))
	}
	within := func(field string, inner []error) {
		for _, err := range inner {
			errs = append(errs, fmt.Errorf("%s.%w", field, err))
		}
	}
	timeouts := c.timeouts()
	for _, tier := range slices.Sorted(maps.Keys(c.Timeouts)) {
		if tier == "" {
			bad(`Timeouts[""]`, "has no name")
		}
		if d := c.Timeouts[tier]; d <= 0 {
			bad(fmt.Sprintf("Timeouts[%q]", tier), "is %s: it must be positive", d)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tools)) {
		field, t := fmt.Sprintf("Tools[%q]", name), c.Tools[name]
		if name == "" {
			bad(field, "has no name")
		}
		if _, ok := timeouts[t.Tier]; t.Tier != "" && !ok {
			bad(field+".Tier", "is %q: it must be one of %q, or be given a limit in Timeouts", t.Tier, slices.Sorted(maps.Keys(timeouts)))
		}
		if t.Timeout < 0 {
			bad(field+".Timeout", "is %s: it must not be negative (0 is the tier's)", t.Timeout)
		}
		if limit := t.timeout(name, timeouts); t.MaxTimeout < 0 {
			bad(field+".MaxTimeout", "is %s: it must not be negative (0 is the tool's timeout)", t.MaxTimeout)
		} else if t.MaxTimeout > 0 && t.MaxTimeout < limit {
			bad(field+".MaxTimeout", "is %s: it must not be under the tool's timeout of %s", t.MaxTimeout, limit)
		}
		if t.Effect > NonIdempotent {
			bad(field+".Effect", "is %d: it must be EffectUnknown, ReadOnly, Idempotent or NonIdempotent", t.Effect)
		}
		if t.Retry != nil {
			within(field+".Retry", t.Retry.check())
		}
	}
	if c.Effect > NonIdempotent {
		bad("Effect", "is %d: it must be EffectUnknown, ReadOnly, Idempotent or NonIdempotent", c.Effect)
	}
	within("Breaker", c.Breaker.check())
	within("Retry", c.Retry.check())
	if c.AttemptTimeout < 0 {
		bad("AttemptTimeout", "is %s: it must not be negative (0 is none)", c.AttemptTimeout)
	}
	if c.MaxAbandoned < 0 {
		bad("MaxAbandoned", "is %d: it must not be negative (0 is %d)", c.MaxAbandoned, defaultMaxAbandoned)
	}
	for _, code := range slices.Sorted(maps.Keys(c.Suggestions)) {
		if !code.valid() {
			bad(fmt.Sprintf("Suggestions[%q]", string(code)), "is of no code: it must be one of %q", slices.Sorted(maps.Keys(suggestions)))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("resilience: wrong Config: %w", errors.Join(errs...))
}

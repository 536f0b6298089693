package resilience

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config configures a [Guard]. The zero value is all defaults. New copies what it needs, so
// that later changes of a Config have no effect.
//
// Its functions are called concurrently and must be quick. A panic in one is recovered and logged once.
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

	// Breaker is the template for all breakers. Its OnChange must be nil.
	Breaker BreakerConfig

	// Breakers replaces the template for single breakers, by name: the Breaker of a tool, or the name of
	// a tool without one. Zero fields are as in the template.
	Breakers map[string]BreakerConfig

	// Retry applies to every tool that has none of its own. Its OnRetry must be nil.
	Retry Retry

	// MaxAbandoned is how many abandoned attempts of a tool may still run, after the tool's own
	// timeout has passed, before new calls are OVERLOADED. Calls that are under way at that moment may
	// exceed it. Zero means 64. It must not be negative.
	MaxAbandoned int

	// OnceFor is how long the result of a call that must not act twice is kept for the same call (see [Once]),
	// if its caller has left or received TIMEOUT. While the tool runs, the same call waits for it, within its
	// own timeout. It is made if the first one has failed, and CANCELED if nobody knows how that ended. At most
	// 1,024 results of up to 64KiB of JSON are kept, in the memory of this process: replicas share them only if
	// each agent stays with one of them. Zero means 2m, and negative turns this off.
	OnceFor time.Duration

	// Classify returns the class of a failure. It receives the tool's error, or the TIMEOUT of a call
	// that exceeded the tool's own timeout, never nil. It may call the package's Classify, which then
	// also considers the backend's reports. Nil, or a panic, means the package's Classify.
	Classify func(error) Class

	// Suggestions replaces the suggestions for agents, by code. If another call may do harm, a request to
	// check first whether the tool has taken effect is still added. Each key must be
	// one of the Codes; the one of TOOL_FAILED is also for the codes of tools' own.
	Suggestions map[Code]string

	// Observers receive the events of every call. They are isolated: a panic or a slow callback
	// affects neither calls nor other observers, apart from [Observer].Start, for which calls wait.
	Observers []Observer

	// Log receives warnings about callbacks that panic, observers that fall behind, tools that the
	// server doesn't have, and tools whose failures nothing explains. Nil means slog.Default().
	Log *slog.Logger

	// Scrub removes secrets from every text of a tool that reaches an agent through this library. It is
	// called after the package's [Scrub]. If it panics, the text is "[REDACTED]". Nil means none.
	Scrub func(text string) string

	// Debug adds details to every error: redacted arguments, timeout, attempt, elapsed time
	// and cause. The agent reads them. The cause is scrubbed (see [Scrub]), and the arguments are
	// redacted by their names (see [Redact]): other secrets in them aren't recognized.
	Debug bool
}

// Tool describes one tool. The zero value is all defaults.
type Tool struct {
	// Tier selects the timeout: Quick, Heavy or a key of Config.Timeouts. The empty tier means
	// Heavy for a tool named cypher, impact or explore, in any case, and Quick for all others.
	Tier Tier

	// Timeout is the tool's own timeout, which replaces the one of its tier, for all attempts together. A
	// tool whose requests may hang leaves time for another attempt by giving each a shorter timeout, with
	// context.WithTimeout. Zero means the tier's timeout. It must not be negative.
	Timeout time.Duration

	// MaxTimeout bounds a call whose timeout [ReportProgress] restarts or a client extends (see
	// [MetaTimeout]). Zero means the tool's timeout, so that neither has an effect. It must not be
	// below the tool's timeout.
	MaxTimeout time.Duration

	// MaxInFlight is how many calls of the tool may run at once. A further one is OVERLOADED, after
	// MaxWait, which no breaker counts: servers over stdio have few workers, and one slow tool must not
	// take them all. A paused call counts too, a call of the tool within one of its own doesn't. Zero means
	// any number. It must not be negative.
	MaxInFlight int

	// MaxWait is how long a call waits for one of the MaxInFlight, first come first served, as a part of its
	// timeout. It doesn't wait while the breaker isn't closed, nor for longer than half of its timeout. Each call
	// that waits takes a worker of a server over stdio. Zero means that it doesn't wait. It must not be negative,
	// or over half the tool's timeout.
	MaxWait time.Duration

	// Effect is the effect of running the tool twice. Config.Effect doesn't apply to a tool that is
	// listed.
	Effect Effect

	// Breaker names the tool's breaker. Tools that share a backend name the same one. Empty
	// means the tool's own name. For a tool with several backends, see [BreakerKey].
	Breaker string

	// Cooperative promises that the tool returns soon after its context has ended. The tool then
	// runs on the caller's goroutine, which is faster. A tool that breaks the promise hangs its
	// caller. A runtime.Goexit in it ends the caller's goroutine.
	Cooperative bool

	// Retry replaces Config.Retry as a whole. Its OnRetry must be nil. Nil means Config.Retry.
	Retry *Retry
}

// ConfigFromEnv reads a Config from the environment variables PREFIX_TIMEOUT_QUICK,
// PREFIX_TIMEOUT_HEAVY and PREFIX_DEBUG. A timeout is a positive number of milliseconds, such
// as 90000, or a positive duration, such as 90s. Debug is true or false. A variable that is
// unset or empty leaves its field zero. With an empty prefix the names have no underscore in
// front.
//
// Any other value is an error, which names each wrong variable, its value and the allowed values. The
// Config is zero then.
func ConfigFromEnv(prefix string) (Config, error) {
	if prefix != "" {
		prefix += "_"
	}

	var cfg Config
	var errs fieldErrors
	timeouts := make(Timeouts)
	for _, tier := range []Tier{Quick, Heavy} {
		name := prefix + "TIMEOUT_" + strings.ToUpper(string(tier))
		if value := os.Getenv(name); value != "" {
			d, ok := parseTimeout(value)
			errs.require(ok, name,
				`is %q: it must be a positive number of milliseconds ("90000") or a positive duration ("90s")`, value)
			timeouts[tier] = d
		}
	}
	if len(timeouts) > 0 {
		cfg.Timeouts = timeouts
	}

	debug := os.Getenv(prefix + "DEBUG")
	cfg.Debug = debug == "true"
	errs.require(cfg.Debug || debug == "false" || debug == "", prefix+"DEBUG",
		`is %q: it must be "true" or "false"`, debug)
	if len(errs) > 0 {
		return Config{}, fmt.Errorf("resilience: wrong environment: %w", errors.Join(errs...))
	}
	return cfg, nil
}

func parseTimeout(value string) (d time.Duration, ok bool) {
	if ms, err := strconv.ParseInt(value, 10, 64); err == nil {
		return time.Duration(ms) * time.Millisecond, ms > 0 && ms <= int64(never/time.Millisecond)
	}
	d, err := time.ParseDuration(value)
	return d, err == nil && d > 0
}

// withDefaults returns c with the defaults of fields that concern all tools, and copies of its small maps.
func (c Config) withDefaults() Config {
	timeouts := Timeouts{Quick: quickTimeout, Heavy: heavyTimeout}
	maps.Copy(timeouts, c.Timeouts)
	c.Timeouts = timeouts
	c.Breaker = c.Breaker.withDefaults()
	c.MaxAbandoned = cmp.Or(c.MaxAbandoned, defaultMaxAbandoned)
	c.OnceFor = cmp.Or(c.OnceFor, defaultOnceFor)
	c.Suggestions = maps.Clone(c.Suggestions)
	return c
}

const defaultMaxAbandoned = 64

// timeout returns the timeout of a tool by its own field, its tier or its name.
func (t Tool) timeout(name string, timeouts Timeouts) time.Duration {
	return cmp.Or(t.Timeout, timeouts[cmp.Or(t.Tier, defaultTier(name))])
}

// check returns an error that names every bad field. It is called after withDefaults.
func (c Config) check() error {
	var errs fieldErrors
	for _, tier := range sortedKeys(c.Timeouts) {
		field := fmt.Sprintf("Timeouts[%q]", tier)
		errs.require(tier != "", field, "has no name")
		errs.require(c.Timeouts[tier] > 0, field, "is %s: it must be positive", c.Timeouts[tier])
	}

	breakers := make(map[string]bool)
	for _, name := range sortedKeys(c.Tools) {
		c.Tools[name].check(&errs, name, c.Timeouts)
		breakers[cmp.Or(c.Tools[name].Breaker, name)] = true
	}

	errs.part("Breaker", c.Breaker.check(), "OnChange", c.Breaker.OnChange != nil)
	for _, name := range sortedKeys(c.Breakers) {
		field := fmt.Sprintf("Breakers[%q]", name)
		errs.require(breakers[name], field, "is of no tool: it must be one of %q", sortedKeys(breakers))
		errs.part(field, c.Breakers[name].check(), "OnChange", c.Breakers[name].OnChange != nil)
	}

	errs.part("Retry", c.Retry.check(), "OnRetry", c.Retry.OnRetry != nil)
	notNegative(&errs, "MaxAbandoned", c.MaxAbandoned, fmt.Sprint(defaultMaxAbandoned))
	for _, code := range sortedKeys(c.Suggestions) {
		errs.require(slices.Contains(codes, code), fmt.Sprintf("Suggestions[%q]", string(code)),
			"is of no code: it must be one of %q", codes)
	}

	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("resilience: wrong Config: %w", errors.Join(errs...))
}

func (t Tool) check(errs *fieldErrors, name string, timeouts Timeouts) {
	field, timeout := fmt.Sprintf("Tools[%q]", name), t.timeout(name, timeouts)
	errs.require(name != "" && name != othersName, field,
		`has no name of its own: it must be neither empty nor "(others)"`)
	_, known := timeouts[t.Tier]
	errs.require(known || t.Tier == "", field+".Tier",
		"is %q: it must be one of %q, or be given a timeout in Timeouts", t.Tier, sortedKeys(timeouts))

	notNegative(errs, field+".Timeout", t.Timeout, "the tier's")
	notNegative(errs, field+".MaxTimeout", t.MaxTimeout, "the tool's timeout")
	errs.require(t.MaxTimeout <= 0 || t.MaxTimeout >= timeout, field+".MaxTimeout",
		"is %s: it must not be under the tool's timeout of %s", t.MaxTimeout, timeout)
	notNegative(errs, field+".MaxInFlight", t.MaxInFlight, "any number")
	notNegative(errs, field+".MaxWait", t.MaxWait, "none")
	errs.require(t.MaxWait <= 0 || t.MaxWait <= timeout/2, field+".MaxWait",
		"is %s: it must not be over half the tool's timeout of %s", t.MaxWait, timeout)
	errs.require(t.MaxWait <= 0 || t.MaxInFlight > 0, field+".MaxWait", "is set without a MaxInFlight to wait for")
	if t.Retry != nil {
		errs.part(field+".Retry", t.Retry.check(), "OnRetry", t.Retry.OnRetry != nil)
	}
}

// fieldErrors are the errors of the fields of a configuration.
type fieldErrors []error

// require adds an error unless ok.
func (e *fieldErrors) require(ok bool, field, format string, args ...any) {
	if !ok {
		*e = append(*e, fmt.Errorf("%s %s", field, fmt.Sprintf(format, args...)))
	}
}

// notNegative checks a number or a duration, whose zero has a meaning.
func notNegative[T ~int | ~int64](e *fieldErrors, field string, v T, zero string) {
	e.require(v >= 0, field, "is %v: it must not be negative (0 is %s)", v, zero)
}

// part adds the errors of a field that is a struct. A guard has observers instead of the struct's hook.
func (e *fieldErrors) part(field string, inner []error, hook string, isSet bool) {
	for _, err := range inner {
		*e = append(*e, fmt.Errorf("%s.%w", field, err))
	}
	e.require(!isSet, field+"."+hook, "is set: it must be nil, since a guard calls Observers")
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

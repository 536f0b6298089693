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

// Config configures a [Guard]. The zero value is all defaults. Its functions must be quick and safe for concurrent use;
// a panic in one is recovered.
type Config struct {
	Timeouts     Timeouts                 // replaces those of Quick (60s) and Heavy (120s), or adds tiers; all positive
	Tools        map[string]Tool          // by name, neither empty nor "(others)"; other tools may be called too
	Effect       Effect                   // of tools that aren't listed in Tools
	Breaker      BreakerConfig            // the template for all breakers; its OnChange must be nil
	Breakers     map[string]BreakerConfig // for single breakers, by name; zero fields are as in the template
	Retry        Retry                    // for tools that have none of their own; its OnRetry must be nil
	MaxAbandoned int                      // abandoned attempts of a tool before calls are OVERLOADED; 0 means 64

	// OnceFor is how long the result of a call whose caller has left or received TIMEOUT is kept for the same call, see
	// [Once]: up to 1,024 results, each of up to 64KiB of JSON, in this process. Zero means 2m, and negative is off.
	OnceFor time.Duration

	// Classify returns the class of a failure. It receives the tool's error, or the TIMEOUT of a call that exceeded the
	// tool's own timeout, never nil. Nil means the package's [Classify], which it may call.
	Classify func(error) Class

	Suggestions map[Code]string          // for agents, by code; that of TOOL_FAILED is also for codes of tools' own
	Observers   []Observer               // receive the events of every call
	Log         *slog.Logger             // for warnings, such as panics in callbacks; nil means slog.Default()
	Scrub       func(text string) string // removes secrets from tools' texts for agents, after the package's [Scrub]
	Debug       bool                     // lets agents read timeout, attempt, time, cause and [Redact]ed arguments
}

// Tool describes one tool. The zero value is all defaults. A tool whose requests may hang gives each a shorter
// timeout, to leave time for another attempt.
type Tool struct {
	Tier        Tier          // selects the timeout: Quick, Heavy or a key of Config.Timeouts; empty: see [Tier]
	Timeout     time.Duration // of a call with all its attempts; 0 means the timeout of the tier
	MaxTimeout  time.Duration // up to which [ReportProgress] and [MetaTimeout] extend that; 0 means that they don't
	MaxInFlight int           // calls at once; a further one is OVERLOADED, which isn't counted; 0 means any number
	MaxWait     time.Duration // for one of the MaxInFlight, as part of the timeout and at most half of it; 0 means none
	Effect      Effect        // of running the tool twice; 0 means as its annotations say, if it has any
	Breaker     string        // its name, the same for tools that share a backend; empty means the tool's name
	Cooperative bool          // runs on the caller's goroutine, so it must return soon after its context has ended
	Retry       *Retry        // replaces Config.Retry as a whole; its OnRetry must be nil; nil means Config.Retry
}

// ConfigFromEnv reads a Config from the environment variables PREFIX_TIMEOUT_QUICK, PREFIX_TIMEOUT_HEAVY and
// PREFIX_DEBUG, without the underscore if prefix is empty. A timeout is a positive duration, such as 90s, or a number
// of milliseconds. Debug is true or false. Empty means unset.
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

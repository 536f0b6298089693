package resilience

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// ConfigFromEnv reads a Config from the environment variables PREFIX_TIMEOUT_QUICK,
// PREFIX_TIMEOUT_HEAVY and PREFIX_DEBUG. A timeout is a positive number of milliseconds, such
// as 90000, or a positive duration, such as 90s. Debug is true or false. A variable that is
// unset or empty leaves its field zero. With an empty prefix the names have no underscore in
// front.
//
// Any other value is an error. It names each wrong variable, its value and what is allowed,
// and comes with a zero Config.
func ConfigFromEnv(prefix string) (Config, error) {
	if prefix != "" {
		prefix += "_"
	}

	var cfg Config
	var errs []error
	for _, v := range []struct {
		name string
		tier Tier
	}{
		{prefix + "TIMEOUT_QUICK", Quick},
		{prefix + "TIMEOUT_HEAVY", Heavy},
	} {
		value := os.Getenv(v.name)
		if value == "" {
			continue
		}

		d, err := parseTimeout(value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is %q: %w", v.name, value, err))
			continue
		}
		if cfg.Timeouts == nil {
			cfg.Timeouts = make(Timeouts)
		}
		cfg.Timeouts[v.tier] = d
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

var errTimeoutFormat = errors.New(
	`it must be a positive number of milliseconds ("90000") or a positive duration ("90s")`)

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

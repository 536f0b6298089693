package workspace

import (
	"fmt"
	"net/url"

	"github.com/seed8d1e2389/resilience"
)

// Breakers returns the configuration of the servers' breaker "backend". If probe isn't empty, it is a URL that is
// asked while the breaker is open, so that it closes without a call once the backend answers.
func Breakers(probe string) (map[string]resilience.BreakerConfig, error) {
	if probe == "" {
		return nil, nil
	}
	if u, err := url.Parse(probe); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("-probe %q: must be an absolute URL of http or https", probe)
	}

	return map[string]resilience.BreakerConfig{
		"backend": {Probe: resilience.ProbeURL(probe, nil)},
	}, nil
}

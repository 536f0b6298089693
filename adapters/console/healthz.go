package console

import (
	"net/http"
	"slices"

	"github.com/seed8d1e2389/resilience"
)

// healthy is the default of Config.Healthy, but for the guard that is closed: none of its tools is available.
func healthy(all []resilience.Health) bool {
	listed := false
	for _, h := range all {
		if h.Listed && h.Available {
			return true
		}
		listed = listed || h.Listed
	}
	return !listed
}

// healthz answers a load balancer. Names and errors are left out, because clients may reach it too.
func (c *Console) healthz(w http.ResponseWriter, _ *http.Request) {
	all := c.guard.Health()
	ok := healthy(all) && !c.guard.Closed()
	if f := c.cfg.Healthy; f != nil {
		ok = f(all)
	}

	code, status := http.StatusOK, "ok"
	switch {
	case !ok:
		code, status = http.StatusServiceUnavailable, "unavailable"
	case slices.ContainsFunc(all, func(h resilience.Health) bool { return !h.Available }):
		status = "degraded"
	}
	answer(w, code, map[string]string{"status": status})
}

package console

import (
	"net/http"

	"github.com/seed8d1e2389/resilience"
)

const (
	statusOK          = "ok"          // all tools can be called
	statusDegraded    = "degraded"    // some can't
	statusUnavailable = "unavailable" // the server isn't healthy
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

func statusOf(all []resilience.Health, healthy bool) string {
	if !healthy {
		return statusUnavailable
	}
	for _, h := range all {
		if !h.Available {
			return statusDegraded
		}
	}
	return statusOK
}

// healthz answers a load balancer. Names and errors are left out, because clients may reach it too.
func (c *Console) healthz(w http.ResponseWriter, _ *http.Request) {
	all := c.guard.Health()
	ok := false
	if f := c.cfg.Healthy; f != nil {
		ok = f(all)
	} else {
		ok = healthy(all) && !c.guard.Closed()
	}

	code := http.StatusOK
	if !ok {
		code = http.StatusServiceUnavailable
	}
	answer(w, code, map[string]string{"status": statusOf(all, ok)})
}

package console

import (
	"net/http"
	"slices"

	"github.com/seed8d1e2389/resilience"
)

// healthz answers a load balancer. Names and errors are left out, because clients may reach it too.
func (c *Console) healthz(w http.ResponseWriter, _ *http.Request) {
	all := c.guard.Health()
	ok := !c.guard.Closed()
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

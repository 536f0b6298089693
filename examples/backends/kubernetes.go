package backends

import (
	"github.com/seed8d1e2389/resilience"
	"k8s.io/client-go/rest"
)

// Kubernetes makes all clients of cfg report. A 429 that asks to wait is repeated by client-go itself, ten
// times by default.
func Kubernetes(cfg *rest.Config) { cfg.Wrap(resilience.Transport) }

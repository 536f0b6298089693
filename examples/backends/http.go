package backends

import (
	"net/http"

	"github.com/seed8d1e2389/resilience"
)

// HTTPClient returns a client whose requests are reported. Make them by http.NewRequestWithContext.
func HTTPClient() *http.Client {
	return &http.Client{Transport: resilience.Transport(nil)}
}

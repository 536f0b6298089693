package resilience

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// maxDrained is how much of an answer is read to use its connection again.
const maxDrained = 64 << 10

// ProbeURL returns a [BreakerConfig.Probe] that sends a GET with client, or with http.DefaultClient if client is nil.
// The backend works unless the answer shows trouble (see [Transport]), which is a failure, or rejects the request,
// which is neutral. It panics if rawURL isn't an absolute HTTP URL.
func ProbeURL(rawURL string, client *http.Client) func(context.Context) error {
	if u, err := url.Parse(rawURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		panic(fmt.Sprintf("resilience: ProbeURL: %q isn't an absolute URL of http or https", rawURL))
	}
	if client == nil {
		client = http.DefaultClient
	}

	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, rawURL, nil)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()

		if m := readAnswer(res); m.class != ClassNeutral {
			class := m.class
			if m.limits() {
				class = ClassNeutral
			}
			return mark(fmt.Errorf("resilience: the probe was answered with status %d", res.StatusCode), class, false)
		}
		if n := res.ContentLength; n >= 0 && n <= maxDrained { // a stream has no end
			_, err = io.Copy(io.Discard, res.Body)
		}
		return err
	}
}

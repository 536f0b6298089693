package resilience

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// maxDrained is how much of an answer is read to use its connection again.
const maxDrained = 64 << 10

// ProbeURL returns a [BreakerConfig.Probe] for a server of HTTP. It sends a GET with client, or with
// http.DefaultClient if client is nil, and reads the answer as [Transport] does: one that tells of trouble is a
// failure, and asks to wait as its headers say, one that rejects the request says nothing, and any other means
// that the server works, unless it says that it has up to 64KiB and breaks off or hangs. ProbeURL panics if rawURL
// isn't an absolute URL of http or https.
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
		if res == nil {
			return err
		}
		if n := res.ContentLength; err == nil && n >= 0 && n <= maxDrained { // a stream has no end
			_, err = io.Copy(io.Discard, res.Body) // so that the connection can be used again
		} else {
			err = nil // of the client, which follows no further redirect: the server has answered
		}
		_ = res.Body.Close()

		switch v := verdictOf(res); v.class {
		case ClassNeutral:
			if err != nil {
				return &url.Error{Op: "Get", URL: req.URL.Redacted(), Err: err}
			}
			return nil
		case ClassInvalid:
			return MarkInvalid(fmt.Errorf("resilience: the probe was rejected with status %d", res.StatusCode))
		default:
			return &probeError{res.StatusCode, v.retryAfter}
		}
	}
}

// A probeError is an answer that tells of trouble.
type probeError struct {
	status int
	after  time.Duration
}

func (e *probeError) Error() string {
	return fmt.Sprintf("resilience: the probe was answered with status %d", e.status)
}

// RetryAfter returns how long the server asks to wait.
func (e *probeError) RetryAfter() time.Duration { return e.after }

package workspace

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const maxFetch = 256 << 10 // bytes of a document

// A Fetcher gets documents by HTTP, but only from the given origins: an agent must not be able
// to explore the server's network.
type Fetcher struct {
	Origins []string // such as "http://127.0.0.1:8080"
}

// FetchInput is the input of Fetch.
type FetchInput struct {
	URL string `json:"url" jsonschema:"the document's address"`
}

// FetchOutput is the response of a server.
type FetchOutput struct {
	Status int    `json:"status"`
	Type   string `json:"type"`
	Text   string `json:"text"`
}

// Fetch gets a document. It follows no redirects, which might lead to another origin. Status
// 429 and those from 500 are failures of the server, and errors; any other status is a result.
func (f *Fetcher) Fetch(ctx context.Context, in FetchInput) (FetchOutput, error) {
	u, err := url.Parse(in.URL)
	if err != nil || !slices.Contains(f.Origins, u.Scheme+"://"+u.Host) {
		return FetchOutput{}, invalid("The address %q is not allowed: it must begin with one of %s",
			in.URL, strings.Join(f.Origins, ", "))
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return FetchOutput{}, err
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	res, err := client.Do(req)
	if err != nil {
		return FetchOutput{}, err
	}
	defer res.Body.Close()

	if res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500 {
		return FetchOutput{}, &statusError{res.StatusCode, res.Header.Get("Retry-After")}
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxFetch))
	if err != nil {
		return FetchOutput{}, err
	}
	text := strings.ToValidUTF8(string(body), "\uFFFD")
	return FetchOutput{res.StatusCode, res.Header.Get("Content-Type"), text}, nil
}

// A statusError is a response that reports a failure of the server.
type statusError struct {
	status     int
	retryAfter string // the header: seconds, a date, or empty
}

func (e *statusError) Error() string { return fmt.Sprintf("server answered %d", e.status) }

// RetryAfter returns how long the server asks its clients to wait. A guard respects it.
func (e *statusError) RetryAfter() time.Duration {
	if s, err := strconv.Atoi(e.retryAfter); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(e.retryAfter); err == nil {
		return time.Until(at)
	}
	return 0
}

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

const maxFetch = 256 << 10

// A Fetcher gets documents by HTTP, from the given origins only: an agent must not
// be able to look around in the server's network.
type Fetcher struct {
	Origins []string // such as "http://127.0.0.1:8080"
}

// FetchInput is what Fetch takes.
type FetchInput struct {
	URL string `json:"url" jsonschema:"the document's address"`
}

// FetchOutput is what a server answered.
type FetchOutput struct {
	Status int    `json:"status"`
	Type   string `json:"type"`
	Text   string `json:"text"`
}

// Fetch gets a document. An answer that says that the server is in trouble (429 or
// 5xx) is a failure; one that says that the request is wrong is an answer.
func (f *Fetcher) Fetch(ctx context.Context, in FetchInput) (FetchOutput, error) {
	u, err := url.Parse(in.URL)
	if err != nil || !slices.Contains(f.Origins, u.Scheme+"://"+u.Host) {
		return FetchOutput{}, invalid("The address %q is not allowed: it must begin with one of %s", in.URL, strings.Join(f.Origins, ", "))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return FetchOutput{}, err
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
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
	return FetchOutput{res.StatusCode, res.Header.Get("Content-Type"), strings.ToValidUTF8(string(body), "\uFFFD")}, nil
}

// A statusError tells a guard how long the server wants to be left alone.
type statusError struct {
	status int
	after  string
}

func (e *statusError) Error() string { return fmt.Sprintf("server answered %d", e.status) }

func (e *statusError) RetryAfter() time.Duration {
	if s, err := strconv.Atoi(e.after); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(e.after); err == nil {
		return time.Until(at)
	}
	return 0
}

package workspace

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/seed8d1e2389/resilience"
)

const maxFetch = 256 << 10 // bytes of a document

// client shows the guard what the servers answer. It follows no redirects, which might lead to another origin.
var client = &http.Client{
	Transport:     resilience.Transport(nil),
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

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

// Fetch gets a document. Status 429 and those from 500 are failures of the server, and errors; any other status is a
// result.
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
	res, err := client.Do(req)
	if err != nil {
		return FetchOutput{}, err
	}
	defer res.Body.Close()

	if res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500 {
		return FetchOutput{}, fmt.Errorf("the server answered %s", res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxFetch))
	if err != nil {
		return FetchOutput{}, err
	}
	text := strings.ToValidUTF8(string(body), "\uFFFD")
	return FetchOutput{res.StatusCode, res.Header.Get("Content-Type"), text}, nil
}

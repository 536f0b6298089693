package devtools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// client keeps no idle connections, since one to a browser that was killed would be broken.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

var errNoPage = errors.New("the browser shows no such page")

// find returns the address of the WebSocket of the first page whose URL starts with prefix.
func find(ctx context.Context, browser, prefix string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(browser, "/")+"/json/list", nil)
	if err != nil {
		return "", err
	}

	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the list of pages: %s", res.Status)
	}

	var targets []struct {
		Type      string `json:"type"`
		URL       string `json:"url"`
		WebSocket string `json:"webSocketDebuggerUrl"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxMessage)).Decode(&targets); err != nil {
		return "", fmt.Errorf("the list of pages: %w", err)
	}

	for _, t := range targets {
		if t.Type == "page" && t.WebSocket != "" && strings.HasPrefix(t.URL, prefix) {
			return t.WebSocket, nil
		}
	}
	return "", errNoPage
}

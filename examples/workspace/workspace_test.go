package workspace_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/examples/workspace"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// open opens a directory beside which there is a secret.
func open(t *testing.T) *workspace.Dir {
	t.Helper()
	root := t.TempDir()
	outside := filepath.Join(root, "secret.txt")
	dir := filepath.Join(root, "ws")
	for name, text := range map[string]string{
		outside:                            "Treasure outside",
		filepath.Join(dir, "a.txt"):        "first\nsome Treasure here\n",
		filepath.Join(dir, "sub", "b.md"):  "# TREASURE\n",
		filepath.Join(dir, ".git", "c"):    "treasure hidden",
		filepath.Join(dir, "bin"):          "\x00 treasure",
		filepath.Join(dir, "big.txt"):      strings.Repeat("é", 200_000),
		filepath.Join(dir, "sub", "many"):  strings.Repeat("needle\n", 80),
		filepath.Join(dir, "sub", "empty"): "",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))

	d, err := workspace.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

func TestSearchFindsVisibleText(t *testing.T) {
	d := open(t)
	out, err := d.Search(t.Context(), workspace.SearchInput{Text: "treasure"})
	require.NoError(t, err)
	assert.Equal(t, []workspace.Match{
		{Path: "a.txt", Line: 2, Text: "some Treasure here"},
		{Path: "sub/b.md", Line: 1, Text: "# TREASURE"},
	}, out.Matches)
	assert.False(t, out.More)

	out, err = d.Search(t.Context(), workspace.SearchInput{Text: "needle"})
	require.NoError(t, err)
	assert.Len(t, out.Matches, 50)
	assert.True(t, out.More)

	_, err = d.Search(t.Context(), workspace.SearchInput{})
	assert.ErrorIs(t, err, resilience.CodeValidation)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = d.Search(ctx, workspace.SearchInput{Text: "x"})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestReadStaysInside(t *testing.T) {
	d := open(t)
	out, err := d.Read(t.Context(), workspace.ReadInput{Path: "./sub/../a.txt"})
	require.NoError(t, err)
	assert.Equal(t, workspace.ReadOutput{Path: "a.txt", Text: "first\nsome Treasure here\n"}, out)
	out, err = d.Read(t.Context(), workspace.ReadInput{Path: "big.txt"})
	require.NoError(t, err)
	assert.True(t, out.More)
	assert.Len(t, out.Text, 256<<10)

	for _, path := range []string{
		"../secret.txt", "sub/../../secret.txt", `..\secret.txt`, "/etc/passwd",
		"link", "nosuch", "sub", "bin", "", "a\x00b",
	} {
		_, err := d.Read(t.Context(), workspace.ReadInput{Path: path})
		assert.ErrorIs(t, err, resilience.CodeValidation, "%q", path)
	}
}

func TestFetch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/busy":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/away":
			http.Redirect(w, r, "http://10.0.0.7/", http.StatusFound)
		case "/none":
			w.WriteHeader(http.StatusNotFound)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			fmt.Fprint(w, "hello \xff")
		}
	}))
	defer server.Close()
	fetcher := &workspace.Fetcher{Origins: []string{server.URL}}
	fetch := func(url string) (workspace.FetchOutput, error) {
		return fetcher.Fetch(t.Context(), workspace.FetchInput{URL: url})
	}

	t.Run("a document, a client error and a redirect are results", func(t *testing.T) {
		for path, want := range map[string]workspace.FetchOutput{
			"/": {Status: 200, Type: "text/plain; charset=utf-8", Text: "hello \uFFFD"}, "/none": {Status: 404},
			"/away": {
				Status: 302, Type: "text/html; charset=utf-8", Text: "<a href=\"http://10.0.0.7/\">Found</a>.\n\n",
			},
		} {
			out, err := fetch(server.URL + path)
			require.NoError(t, err)
			assert.Equal(t, want, out)
		}
	})

	t.Run("a guard reads what the server has answered", func(t *testing.T) {
		guard := resilience.Must(resilience.New(resilience.Config{Retry: resilience.Retry{MaxRetries: -1}}))
		for path, want := range map[string]resilience.Code{
			"/busy": resilience.CodeRateLimited, "/broken": resilience.CodeToolFailed,
		} {
			r := resilience.Run(t.Context(), guard, "fetch", func(ctx context.Context) (workspace.FetchOutput, error) {
				return fetcher.Fetch(ctx, workspace.FetchInput{URL: server.URL + path})
			})
			assert.ErrorIs(t, r.Err, want, path)
			assert.Equal(t, want == resilience.CodeRateLimited, r.Err.RetryAfter > 0, path)
		}
	})

	t.Run("another origin is the agent's mistake", func(t *testing.T) {
		for _, url := range []string{
			"http://10.0.0.7/", "file:///etc/passwd", "::", "", server.URL + "0/",
			strings.Replace(server.URL, "http://", "http://user@", 1) + ".evil",
		} {
			_, err := fetch(url)
			assert.ErrorIs(t, err, resilience.CodeValidation, "%q", url)
		}
	})
}

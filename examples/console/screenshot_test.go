package console

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/console"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the screenshots in docs")

// maxSize is how large a screenshot may be, which everyone who clones the repository gets.
const maxSize = 150 << 10

// TestScreenshots shows the page of an outage in sizes and colours. With -update it writes the screenshots.
func TestScreenshots(t *testing.T) {
	url := replay(t, outage(t))
	for _, tc := range []struct {
		name, scheme  string
		width, height int
	}{
		{"light", "light", 1280, 800},
		{"dark", "dark", 1280, 800},
		{"phone", "light", 390, 844},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := open(t, url, tc.width, tc.height)
			b.media("prefers-color-scheme", tc.scheme)
			b.eventually(`document.querySelectorAll("#trouble .row").length > 0`)
			assert.Equal(t, "3 of 9 tools can't be called", b.text(`document.querySelector("h1").textContent`))
			assert.True(t, b.is(`document.documentElement.scrollWidth <= innerWidth`), "it scrolls horizontally")

			shot := b.screenshot()
			if *update {
				require.Less(t, len(shot), maxSize)
				require.NoError(t, os.WriteFile("../../docs/console-"+tc.name+".png", shot, 0o644))
			}
		})
	}
}

// replay serves the page with events that were recorded, and returns its URL.
func replay(t *testing.T, document []byte) string {
	page, err := console.New(console.Config{})
	require.NoError(t, err)
	guard := resilience.Must(resilience.New(resilience.Config{Observers: []resilience.Observer{page.Observer()}}))
	handler, err := page.Handler(guard)
	require.NoError(t, err)

	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.HandleFunc("/api/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: snapshot\ndata: %s\n\n", document)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

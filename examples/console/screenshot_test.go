package console

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
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
	url, _ := replay(t, outage(t))
	for _, tc := range []struct {
		name, scheme  string
		width, height int64
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

// A connection may break without a word: the page opens another one after 15s without an event.
func TestThePageLeavesAServerThatIsSilent(t *testing.T) {
	url, opened := replay(t, outage(t))
	b := open(t, url, 1280, 800)
	b.eventually(`document.querySelector("#link").innerText.startsWith("Live")`)
	b.eventually(`document.querySelector("#notice").innerText.includes("The data is stale")`)
	b.eventually(`document.querySelector("#link").innerText.startsWith("Live")`)
	assert.GreaterOrEqual(t, opened.Load(), int64(2))
}

// replay serves the page with a snapshot that was recorded, and nothing after it. It returns its URL and how often
// events were asked for.
func replay(t *testing.T, document []byte) (url string, opened *atomic.Int64) {
	page, err := console.New(console.Config{})
	require.NoError(t, err)
	guard := resilience.Must(resilience.New(resilience.Config{Observers: []resilience.Observer{page.Observer()}}))
	handler, err := page.Handler(guard)
	require.NoError(t, err)

	opened = new(atomic.Int64)
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.HandleFunc("/api/events", func(w http.ResponseWriter, r *http.Request) {
		opened.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: snapshot\ndata: %s\n\n", document)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL, opened
}

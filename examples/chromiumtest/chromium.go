// Package chromiumtest runs tests in a real browser.
package chromiumtest

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

const (
	// Wait is how long a test waits for the browser, in case that it hangs.
	Wait = 3 * time.Minute

	// Poll is the time between two looks at what the browser does.
	Poll = 50 * time.Millisecond
)

// Path returns the path of a Chromium: $CHROME_PATH, one on the PATH, or one that it installs with npm. It skips the
// test if none of these is available, and with -short.
func Path(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("with -short, Chromium is neither started nor installed")
	}
	if path := os.Getenv("CHROME_PATH"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome-headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}

	path, err := installed(t.Context())
	if err != nil && strings.Contains(err.Error(), "EINTEGRITY") {
		t.Fatal(err) // the package isn't the one that was chosen, which must not go unnoticed
	}
	if err != nil {
		t.Skipf("there is no Chromium (set CHROME_PATH to the path of one), and it can't be installed: %v", err)
	}
	return path
}

// Open starts a Chromium and returns the context of its page, which is empty. Both end with the test.
func Open(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(Path(t)),
		chromedp.NoSandbox, // it isn't available everywhere, nor needed for pages of our own
		chromedp.DisableGPU,
		chromedp.Flag("disable-lcd-text", true),
		chromedp.Flag("hide-scrollbars", true),
	)
	browser, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	page, closePage := chromedp.NewContext(browser)
	t.Cleanup(closePage)
	require.NoError(t, chromedp.Do(page), "starting Chromium")
	return page
}

// Port returns a port at which nobody listens. It is below those that systems give to outgoing connections, so it stays
// free.
func Port(t *testing.T) string {
	t.Helper()
	for {
		port := strconv.Itoa(12000 + rand.IntN(18000))
		if listener, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			require.NoError(t, listener.Close())
			return port
		}
	}
}

// Eventually waits until a condition is true. The time is there only in case that it never is.
func Eventually(t *testing.T, condition func() bool, why string) {
	t.Helper()
	require.Eventually(t, condition, Wait, Poll, why)
}

package chromiumtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience/examples/bridge/devtools"
	"github.com/stretchr/testify/require"
)

const (
	// Wait is how long a test waits for the browser, in case that it hangs.
	Wait = 3 * time.Minute

	// Poll is the time between two looks at what the browser does.
	Poll = 50 * time.Millisecond
)

// Open starts a Chromium and returns its page, which is empty. Both end with the test.
func Open(t *testing.T) *devtools.Page {
	t.Helper()
	path := Path(t)
	profile := t.TempDir()
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-lcd-text", "--hide-scrollbars",
		"--remote-debugging-port=0", "--user-data-dir="+profile, "about:blank")
	cmd.Stderr = t.Output()
	cmd.WaitDelay = time.Second
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})

	// Chromium writes its port into this file once it listens.
	port := ""
	Eventually(t, func() bool {
		b, err := os.ReadFile(filepath.Join(profile, "DevToolsActivePort"))
		port, _, _ = strings.Cut(string(b), "\n")
		return err == nil && port != ""
	}, "the browser hasn't started")

	var page *devtools.Page
	Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), Wait)
		defer cancel()
		var err error
		page, err = devtools.Dial(ctx, devtools.Config{Browser: "http://127.0.0.1:" + port, Ping: time.Minute})
		return err == nil
	}, "there is no page")
	t.Cleanup(func() { _ = page.Close() })
	return page
}

// Eventually waits until a condition is true. The time is there only in case that it never is.
func Eventually(t *testing.T, condition func() bool, why string, args ...any) {
	t.Helper()
	require.Eventually(t, condition, Wait, Poll, append([]any{why}, args...)...)
}

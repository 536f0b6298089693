package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
)

// A browser is a process that is started and killed, always at the same address.
type browser struct {
	addr     string // at which its DevTools listen
	site     string // the URL that it shows
	tmp      string // a directory for its profiles
	page     string // the program of examples/bridge/page
	chromium string // the program to run instead of page, or empty
	starts   int
	cmd      *exec.Cmd // nil unless it runs
}

func (b *browser) start() error {
	b.starts++
	cmd := exec.Command(b.page, "-addr", b.addr, "-site", b.site)
	cmd.Stderr = os.Stderr
	if b.chromium != "" {
		_, port, err := net.SplitHostPort(b.addr)
		if err != nil {
			return err
		}

		// Each start needs a new profile, because a killed browser leaves its own in disorder. The
		// sandbox isn't available everywhere, nor needed for a page that is the demo's own.
		profile := filepath.Join(b.tmp, fmt.Sprint("profile", b.starts))
		cmd = exec.Command(b.chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
			"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
			"--remote-debugging-port="+port, "--user-data-dir="+profile, b.site)
	}

	setGroup(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the browser: %w", err)
	}
	b.cmd = cmd
	return nil
}

// kill kills the browser, if it runs, and waits until it has ended.
func (b *browser) kill() {
	if b.cmd == nil {
		return
	}
	kill(b.cmd)
	_ = b.cmd.Wait() // it was killed
	b.cmd = nil
}

// pause stops the browser until resume. When pause returns, the browser has stopped.
func (b *browser) pause(ctx context.Context) error { return pause(ctx, b.cmd) }
func (b *browser) resume() error                   { return resume(b.cmd) }

// freeAddr returns an address that stays free while the browser isn't there: its port is below
// those that systems give to outgoing connections.
func freeAddr() (string, error) {
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(18000))
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", errors.New("there is no free port")
}

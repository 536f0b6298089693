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
	addr     string // where its DevTools listen
	site     string // what it shows
	tmp      string
	chromium string // the program; "": page is
	page     string
	starts   int
	cmd      *exec.Cmd // nil unless it runs
}

func (b *browser) start() error {
	b.starts++
	cmd := exec.Command(b.page, "-addr", b.addr, "-site", b.site)
	if b.chromium != "" {
		_, port, err := net.SplitHostPort(b.addr)
		if err != nil {
			return err
		}
		// Each gets a profile of its own: that of one that was killed is in disorder.
		// There is no sandbox, which can't be had everywhere: the page is ours.
		cmd = exec.Command(b.chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
			"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
			"--remote-debugging-port="+port, "--user-data-dir="+filepath.Join(b.tmp, fmt.Sprint("profile", b.starts)), b.site)
	} else {
		cmd.Stderr = os.Stderr
	}
	own(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the browser: %w", err)
	}
	b.cmd = cmd
	return nil
}

// kill gives the browser no chance to say goodbye. It returns when it is gone.
func (b *browser) kill() {
	if b.cmd == nil {
		return
	}
	kill(b.cmd)
	_ = b.cmd.Wait() // it was killed
	b.cmd = nil
}

// pause returns when the browser has stopped.
func (b *browser) pause(ctx context.Context) error { return pause(ctx, b.cmd) }
func (b *browser) resume() error                   { return resume(b.cmd) }

// freeAddr returns an address that stays free while the browser isn't there: its port is
// below those that systems give to connections.
func freeAddr() (string, error) {
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(18000))
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", errors.New("there is no free port")
}

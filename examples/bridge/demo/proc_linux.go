package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// setGroup gives the process a process group of its own, through which it can be signaled with
// all of its children. The process is killed when this one ends, however that happens.
func setGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

func resume(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT) }

// pause stops the process and all of its children. It waits until they have stopped, because the
// system may deliver the signals later.
func pause(ctx context.Context, cmd *exec.Cmd) error {
	group := cmd.Process.Pid
	if err := syscall.Kill(-group, syscall.SIGSTOP); err != nil {
		return err
	}

	for !stopped(group) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the browser doesn't stop: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// stopped reports whether every thread of the processes in a group has stopped or ended.
func stopped(group int) bool {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if _, g := state(process); g != group {
			continue
		}
		threads, _ := filepath.Glob(process + "/task/*")
		for _, thread := range threads {
			if s, _ := state(thread); !strings.Contains("TZX", s) {
				return false
			}
		}
	}
	return true
}

// state returns the state of a process or thread, as a letter, and its process group. For one
// that doesn't exist any more it returns X, which means dead, and 0.
func state(dir string) (state string, group int) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return "X", 0
	}

	afterName := stat[bytes.LastIndexByte(stat, ')')+1:]
	var parent int
	if _, err := fmt.Sscan(string(afterName), &state, &parent, &group); err != nil {
		return "X", 0
	}
	return state, group
}

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

// own makes the process one that can be signaled with all of its children, and that
// doesn't outlive this one, however this one ends.
func own(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

func resume(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT) }

// pause stops the process with all of its children, and waits until they have stopped: the
// system delivers a signal when it next runs them.
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

// stopped reports whether no thread of the processes in a group can run.
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

// state returns the state of a process or thread, one letter, and its process group:
// X, dead, and 0 if there is no such thing any more.
func state(dir string) (state string, group int) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return "X", 0
	}
	var parent int
	_, err = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &parent, &group) // after the name
	if err != nil {
		return "X", 0
	}
	return state, group
}
